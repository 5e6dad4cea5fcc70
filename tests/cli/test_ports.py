"""Sockets are bound before anything starts; a taken port is named with the option that changes it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tailtrace.cli.processes.ports import Door, check_free, free_port, is_loopback, listen, url
from tailtrace.errors import ConfigError


@pytest.fixture
def taken() -> Iterator[Door]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield Door("OTLP/HTTP", "--otlp-http-port", sock.getsockname()[1])


def test_a_taken_port_is_named_with_its_option(taken: Door) -> None:
    with pytest.raises(ConfigError, match=rf"port {taken.port} \(OTLP/HTTP\) on 127.0.0.1 is taken.*--otlp-http-port"):
        check_free("127.0.0.1", taken)


def test_a_taken_port_is_exchanged_for_a_free_one(taken: Door) -> None:
    other = free_port("127.0.0.1", taken)
    assert other.port != taken.port
    assert other.option == taken.option
    check_free("127.0.0.1", other)


def test_a_free_port_is_kept() -> None:
    with listen("127.0.0.1", Door("pages", "--port", 0)) as sock:
        port = sock.getsockname()[1]
    door = Door("pages", "--port", port)
    assert free_port("127.0.0.1", door) == door


def test_a_bound_socket_takes_connections_before_anybody_accepts() -> None:
    with listen("127.0.0.1", Door("pages", "--port", 0)) as sock:
        with socket.create_connection(sock.getsockname(), timeout=5) as client:
            assert client.getpeername() == sock.getsockname()
        assert sock.get_inheritable()


def test_a_host_without_an_address_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"--host no\.such\.host\.invalid"):
        listen("no.such.host.invalid", Door("pages", "--port", 0))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("gateway.example", False),
    ],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("fe80::1", "http://[fe80::1]:80"),
        ("box", "http://box:80"),
    ],
)
def test_addresses_can_be_opened(host: str, shown: str) -> None:
    assert url(host, 80) == shown
