"""What `tailtrace run` hooks: the modules to wait for, and the function that each one calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

log = logging.getLogger("tailtrace")


def _uvicorn_config(module: Any) -> None:
    from tailtrace.instrumentation.engines import uvicorn

    uvicorn.hook_config(module)


def _uvicorn_httptools(module: Any) -> None:
    from tailtrace.instrumentation.engines import uvicorn

    uvicorn.hook_httptools(module)


def _tokenizers(module: Any) -> None:
    from tailtrace.instrumentation.engines import tokenizers

    tokenizers.hook(module)


def _transformers(module: Any) -> None:
    from tailtrace.instrumentation.engines import transformers

    transformers.hook_generate(module)


def _streamers(module: Any) -> None:
    from tailtrace.instrumentation.engines import transformers

    transformers.hook_streamers(module)


def _continuous_batching(module: Any) -> None:
    from tailtrace.instrumentation.engines import transformers

    transformers.hook_continuous_batching(module)


def _vllm(module: Any) -> None:
    from tailtrace.instrumentation.engines.vllm import hook

    hook(module)


def _sglang(module: Any) -> None:
    from tailtrace.instrumentation.engines import sglang

    sglang.hook(module)


def _llama_cpp(module: Any) -> None:
    from tailtrace.instrumentation.engines import llama_cpp

    llama_cpp.hook(module)


def _llama_cpp_server(module: Any) -> None:
    from tailtrace.instrumentation.engines import llama_cpp

    llama_cpp.hook_server(module)


def _celery(module: Any) -> None:
    from tailtrace.instrumentation.engines import celery

    celery.hook(module)


TARGETS: Final[dict[str, Callable[[Any], None]]] = {
    "uvicorn.config": _uvicorn_config,
    "uvicorn.protocols.http.httptools_impl": _uvicorn_httptools,
    "tokenizers": _tokenizers,
    "transformers.generation.utils": _transformers,
    "transformers.generation.streamers": _streamers,
    "transformers.generation.continuous_batching.continuous_api": _continuous_batching,
    "fastapi.routing": _vllm,
    "vllm.renderers.base": _vllm,
    "vllm.v1.engine.output_processor": _vllm,
    "vllm.v1.engine.core": _vllm,
    "vllm.v1.core.sched.scheduler": _vllm,
    "sglang.srt.managers.tokenizer_manager": _sglang,
    "sglang.srt.managers.scheduler": _sglang,
    "celery.signals": _celery,
    "llama_cpp.llama": _llama_cpp,
    "llama_cpp.server.app": _llama_cpp_server,
}


def installed(module: Any) -> None:
    """Hook a module that has just been imported. Never raises."""
    try:
        TARGETS[module.__name__](module)
    except Exception:
        log.warning("tailtrace: %s is not hooked", module.__name__, exc_info=True)
