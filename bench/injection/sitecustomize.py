"""Delays put into a real vLLM server for `bench/injected.py`, apart from the instrumentation and without its help."""

from __future__ import annotations

import importlib.util
import sys
import time
from functools import wraps

from delays import FOLDER, delay_s


def before(name, when=lambda *args: True):
    """Sleep before the call, where `when(*args)` holds."""

    def make(original):
        @wraps(original)
        def delayed(*args, **kwargs):
            seconds = delay_s(name)
            if seconds and when(*args):
                time.sleep(seconds)
            return original(*args, **kwargs)

        return delayed

    return make


def is_prefill(worker, output, *args):
    return bool(output.scheduled_new_reqs)


def is_second_token(worker, output, *args):
    return list(output.scheduled_cached_reqs.num_output_tokens) == [1]


def loop_at_the_end(original):
    """The loop is blocked when the last output of a request has come out of the engine."""

    @wraps(original)
    async def get_output_async(self):
        outputs = await original(self)
        if any(output.finish_reason is not None for output in outputs.outputs):
            time.sleep(delay_s("loop_return"))
        return outputs

    return get_output_async


def small_buffers(original):
    """A slow reader is felt at a short answer when little fits between it and the server."""

    @wraps(original)
    def connection_made(self, transport):
        original(self, transport)
        if delay_s("small_buffers"):
            import socket

            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            transport.set_write_buffer_limits(high=2048)

    return connection_made


PLACES = {
    "vllm.renderers.base": [("BaseRenderer", "_tokenize_prompt", before("tokenizer"))],
    "vllm.v1.engine.core_client": [("AsyncMPClient", "get_output_async", loop_at_the_end)],
    "vllm.v1.core.sched.scheduler": [("Scheduler", "schedule", before("schedule", lambda s, *a: len(s.waiting) > 0))],
    "vllm.v1.worker.worker_base": [
        ("WorkerWrapperBase", "execute_model", before("execute_prefill", is_prefill)),
        ("WorkerWrapperBase", "execute_model", before("execute_decode", is_second_token)),
    ],
    "uvicorn.protocols.http.httptools_impl": [
        ("HttpToolsProtocol", "on_headers_complete", before("loop_arrival")),
        ("HttpToolsProtocol", "connection_made", small_buffers),
    ],
}


class Finder:
    asking = False

    def find_spec(self, name, path=None, target=None):
        if name not in PLACES or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            for owner, method, make in PLACES[name]:
                setattr(getattr(module, owner), method, make(getattr(getattr(module, owner), method)))

        spec.loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.meta_path.insert(0, Finder())
