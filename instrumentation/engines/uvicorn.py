"""uvicorn: every app that it loads is wrapped, and the moment when a request's first byte was here is kept."""

from __future__ import annotations

from typing import Any

from tailtrace.instrumentation import clock, runtime
from tailtrace.instrumentation.engines.patch import fault, replace
from tailtrace.instrumentation.gateway import Gateway, wrap_gateway
from tailtrace.instrumentation.run.process import record_here


def hook_config(module: Any) -> None:
    """`Config.load`: the last moment before serving, in whichever process serves."""
    replace("uvicorn", module, "Config.load", _load, gives="requests")


def _load(original: Any) -> Any:
    def load(self: Any) -> Any:
        result = original(self)
        try:
            role, service_name, resource = _identity(self.app)
            if record_here(role, service_name=service_name, **resource):
                _wrap(self)
        except Exception:
            fault("uvicorn.Config.load")
        return result

    return load


def _identity(app: Any) -> tuple[str, str, dict[str, Any]]:
    """Role, default name and resource of what is served: an engine's API server says which model it has."""
    config = getattr(getattr(app, "state", None), "vllm_config", None)
    if config is None:
        config = getattr(getattr(getattr(app, "state", None), "engine_client", None), "vllm_config", None)
    if config is None:
        return "gateway", "gateway", {}
    from tailtrace.instrumentation.engines.vllm.identity import identity

    return "api_server", "vllm", identity(config)


def _wrap(config: Any) -> None:
    """Wrap the app itself, inside uvicorn's own middleware, so that its routes and dependencies can be found."""
    holder, name = config, "loaded_app"
    while type(getattr(holder, name)).__module__.startswith("uvicorn.middleware") and hasattr(
        getattr(holder, name), "app"
    ):
        holder, name = getattr(holder, name), "app"
    app = getattr(holder, name)
    if not isinstance(app, Gateway):
        setattr(holder, name, wrap_gateway(app))


def hook_httptools(module: Any) -> None:
    """The parser's first callback for a message: earlier than the app is called, also while the loop is busy."""
    replace("uvicorn", module, "HttpToolsProtocol.on_message_begin", _message_begin, gives="net_in of the headers")


def _message_begin(original: Any) -> Any:
    def on_message_begin(self: Any) -> None:
        original(self)
        if runtime.active is not None:
            self.scope["tailtrace.begin_ns"] = clock.now_ns()

    return on_message_begin
