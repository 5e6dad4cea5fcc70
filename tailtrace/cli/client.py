"""The read commands' way to a running server: its JSON API and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailtrace.errors import ConfigError, NotFound, TailtraceError

if TYPE_CHECKING:
    import httpx


class ApiClient:
    """Calls `/api/v1`; every failure becomes an error that says what to do."""

    def __init__(self, url: str, token: str = "", *, timeout_s: float = 60) -> None:
        import httpx

        self.url = url.rstrip("/")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)
        except (ValueError, httpx.InvalidURL) as error:
            raise ConfigError(f"--url {url}: not an address ({error})") from None

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of `GET /api/v1/PATH`; parameters that are None are left out."""
        wanted = {name: value for name, value in parameters.items() if value is not None}
        return self._call("GET", f"/api/v1/{path}", params=wanted)

    def post(self, path: str, body: Any) -> Any:
        """The JSON of `POST /api/v1/PATH`."""
        return self._call("POST", f"/api/v1/{path}", json=body)

    def raw(self, path: str) -> httpx.Response:
        """The answer of a path outside the API, whatever its status."""
        return self._send("GET", path)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        response = self._send(method, path, **options)
        if response.is_success:
            try:
                return response.json()
            except ValueError:
                raise TailtraceError(f"{self.url} answered without JSON: is it a Tailtrace server?") from None
        message = _message(response)
        if response.status_code == 401:
            if "authorization" in self._http.headers:
                raise ConfigError(
                    f"{self.url} does not know this token, or not for this ({message or 'no reason given'})"
                )
            raise ConfigError(
                f"{self.url} asks for a token: give --token or set TAILTRACE_TOKEN ({message or 'no reason given'})"
            )
        if response.status_code == 404 and message:
            raise NotFound(message)
        if response.status_code in (400, 422):
            raise ConfigError(message or f"{self.url} refused the question")
        if response.status_code == 404:
            raise TailtraceError(
                f"{self.url} has no /api/v1: --url is the address of the dashboard, not of an OTLP port"
            )
        raise TailtraceError(f"{self.url} answered {response.status_code}: {message or response.reason_phrase}")

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        import httpx

        try:
            return self._http.request(method, path, **options)
        except httpx.UnsupportedProtocol:
            raise ConfigError(f"--url {self.url}: expected http://HOST:PORT") from None
        except httpx.ConnectError:
            raise TailtraceError(
                f"no server answers at {self.url}: start one with `tailtrace up`, "
                "or name yours with --url or TAILTRACE_URL"
            ) from None
        except httpx.TimeoutException:
            raise TailtraceError(f"{self.url} did not answer in time") from None
        except httpx.HTTPError as error:
            raise TailtraceError(f"{self.url}: the connection broke ({error})") from None


def _message(response: httpx.Response) -> str:
    """The reason in the answer; empty for an answer that is not one of our errors."""
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
