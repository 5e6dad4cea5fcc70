"""The kernel's view of a client's TCP connection: by its socket, or by its two addresses (sock_diag(7)). Linux only."""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from tailtrace.instrumentation.native import native

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_REQUEST: Final = 1
_INFO: Final = 2
_ALL_STATES: Final = 0xFFFFFFFF
_ANY_COOKIE: Final = 0xFFFFFFFF
# struct tcp_info: smoothed round trip in microseconds, and retransmitted segments of the connection so far.
_RTT_AT: Final = 68
_RETRANSMITS_AT: Final = 100
_HEADER: Final = 16
_DIAG_MESSAGE: Final = 72
NOTHING: Final = (0, 0)


def of_socket(sock: Any) -> tuple[int, int]:
    """Round trip in nanoseconds and retransmitted segments so far; zeros where this is no TCP connection."""
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return NOTHING
    if native is not None:
        found: tuple[int, int] = native.tcp_info(sock.fileno())
        return found
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return NOTHING
    return _read(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RETRANSMITS_AT + 4))


def of_addresses(server: Any, client: Any) -> tuple[int, int]:
    """The same for the connection between two (host, port), as ASGI's scope names them; zeros where there is none.

    Behind a proxy that is named as the client by its headers there is none. Raises OSError where sockets of this kind
    are forbidden.
    """
    if not (server and client and server[1] and client[1]) or not hasattr(socket, "AF_NETLINK"):
        return NOTHING
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        here, there = socket.inet_pton(family, server[0]), socket.inet_pton(family, client[0])
    except OSError:
        return NOTHING
    request = struct.pack(
        "=IHHIIBBBBI2s2s16s16sIII", _HEADER + 56, _SOCK_DIAG_BY_FAMILY, _REQUEST, 0, 0,
        family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ALL_STATES,
        struct.pack(">H", server[1]), struct.pack(">H", client[1]), here, there, 0, _ANY_COOKIE, _ANY_COOKIE,
    )  # fmt: skip
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as diag:
        diag.sendto(request, (0, 0))
        # The kernel answers within the call above.
        answer = diag.recv(4096, socket.MSG_DONTWAIT)
    if struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return NOTHING
    at = _HEADER + _DIAG_MESSAGE
    end = struct.unpack_from("=I", answer)[0]
    while at + 4 <= end:
        size, kind = struct.unpack_from("=HH", answer, at)
        if kind == _INFO:
            return _read(answer[at + 4 : at + size])
        at += max(4, (size + 3) & ~3)
    return NOTHING


def _read(info: bytes) -> tuple[int, int]:
    if len(info) < _RETRANSMITS_AT + 4:
        return NOTHING
    (rtt_us,), (retransmits,) = (struct.unpack_from("=I", info, at) for at in (_RTT_AT, _RETRANSMITS_AT))
    return rtt_us * 1000, retransmits
