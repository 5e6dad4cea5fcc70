"""The kernel's round trip of a connection: the same by its socket and by its addresses, nothing where there is none."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tailtrace.instrumentation import answer, tcp_info
from tailtrace.instrumentation.gateway import begin
from tailtrace.instrumentation.record import Record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux shows it")


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"])
def accepted(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """A server's end of a connection that something has been sent over."""
    family, host = request.param
    with socket.socket(family) as listening, socket.socket(family) as client:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip(f"no {host} here")
        listening.listen()
        client.connect(listening.getsockname())
        server, _ = listening.accept()
        with server:
            server.sendall(b"x")
            client.recv(1)
            yield server


@pytest.mark.parametrize("native", [True, False], ids=["C", "Python"])
def test_a_connection_by_its_socket_and_by_its_addresses(
    accepted: socket.socket, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(tcp_info, "native", None)
    rtt_ns, retransmits = tcp_info.of_socket(accepted)
    assert 0 < rtt_ns < 10_000_000_000
    assert rtt_ns % 1000 == 0
    assert retransmits == 0
    try:
        found = tcp_info.of_addresses(accepted.getsockname()[:2], accepted.getpeername()[:2])
    except PermissionError:
        pytest.skip("sock_diag is forbidden here")
    assert found == (rtt_ns, retransmits)


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (None, None), (("127.0.0.1", 80), None), (("testserver", 80), ("testclient", 50000)),
        (("/run/app.sock", None), ("", 0)), (("127.0.0.1", 1), ("203.0.113.9", 1)), (("::1", 1), ("127.0.0.1", 1)),
    ],
)  # fmt: skip
def test_what_is_no_connection_of_this_host_has_none(server: Any, client: Any) -> None:
    assert tcp_info.of_addresses(server, client) == (0, 0)


def test_what_is_no_tcp_socket_has_none() -> None:
    ours, other = socket.socketpair()
    with ours, other:
        assert tcp_info.of_socket(ours) == (0, 0)
    assert tcp_info.of_socket(None) == (0, 0)


def test_a_server_that_shows_no_socket_still_has_a_round_trip(accepted: socket.socket) -> None:
    async def send(message: Any) -> None:
        """A plain function, as other servers give."""

    record = Record("GET", 2)
    ends = (accepted.getsockname()[:2], accepted.getpeername()[:2])
    answer.Answer(record, send, ends).finish(None)
    assert record.attributes["tailtrace.client_rtt_ns"] == tcp_info.of_socket(accepted)[0]


def test_the_client_s_region_comes_from_the_header_that_is_set() -> None:
    scope = {"type": "http", "method": "GET", "headers": [(b"cf-ipcountry", b"DE"), (b"x-other", b"1")]}
    assert begin(scope, 1, b"cf-ipcountry")[0].attributes["client.region"] == "DE"
    assert "client.region" not in begin(scope, 1)[0].attributes
