"""TLS and tokens at every door of a running server."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import grpc
import pytest
from product_process import free_ports
from test_crashes import body

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
OTLP = {"content-type": "application/x-protobuf"}


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed one for 127.0.0.1."""
    chain, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(chain),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


def test_tls_and_scopes_at_every_door(start: Callable[..., Any], tailtrace: Callable[..., Any], tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    config = tmp_path / "tailtrace.toml"
    config.write_text(f'tls_cert = "{chain}"\ntls_key = "{key}"\n')
    data = tmp_path / "data"
    made = [tailtrace("token", "create", scope, "--scope", scope, f"--data={data}") for scope in ("ingest", "read")]
    ingest, read = (outcome.stdout.strip() for outcome in made)
    (clickhouse,) = free_ports(1)
    server = start(data, options=(f"--config={config}", f"--clickhouse-port={clickhouse}")).wait_ready()
    trusted = ssl.create_default_context(cafile=str(chain))

    def status(port: int, path: str, token: str, content: bytes | None = None) -> int:
        headers = {"authorization": f"Bearer {token}", **OTLP}
        request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", content, headers)
        try:
            with urllib.request.urlopen(request, timeout=30, context=trusted) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with pytest.raises((HTTPException, urllib.error.URLError)):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=10)
    assert status(server.port, "/healthz", "") == 200
    assert [status(server.otlp_port, "/v1/traces", token, body(1)) for token in (ingest, read, "")] == [200, 401, 401]
    assert [status(server.port, "/api/v1/services", token) for token in (read, ingest, "")] == [200, 401, 401]
    assert [status(server.port, "/metrics", token) for token in (read, ingest)] == [200, 401]
    statement = "/?query=SELECT%201"
    assert [status(clickhouse, statement, token) for token in (read, ingest, "")] == [200, 401, 401]

    credentials = grpc.ssl_channel_credentials(chain.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials) as channel:
        export = channel.unary_unary(TRACES)
        assert export(body(2), metadata=(("authorization", f"Bearer {ingest}"),), timeout=30) == b""
        with pytest.raises(grpc.RpcError) as refused:
            export(body(3), metadata=(("authorization", f"Bearer {read}"),), timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]

    listed = tailtrace("token", "list", f"--data={data}").stdout
    assert [line.split("\t")[:2] for line in listed.splitlines()] == [["ingest", "ingest"], ["read", "read"]]
    assert ingest not in json.dumps((data / "tokens.json").read_text())
    assert server.stop() == 0
