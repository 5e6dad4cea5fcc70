"""Listening sockets: bound before anything else starts, so that a taken port is an error in words.

The parent binds the HTTP sockets and hands them to each owner it starts. A client that connects while the owner is
being restarted waits in the socket's backlog and is not refused.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass

from tailtrace.errors import ConfigError

_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Door:
    """One port that the product listens on."""

    what: str
    option: str
    port: int


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only. Unknown names count as reachable from outside."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listen(host: str, door: Door) -> socket.socket:
    """A bound, listening, inheritable TCP socket. Raises ConfigError that names port and option."""
    family, address = _resolve(host, door)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(_refused(host, door, error)) from error
    sock.set_inheritable(True)
    return sock


def check_free(host: str, door: Door) -> None:
    """Raise ConfigError when the port cannot be listened on; for servers that bind for themselves."""
    listen(host, door).close()


def free_port(host: str, door: Door) -> Door:
    """The door itself, or the same one on a port that the system picked when its own is taken."""
    try:
        check_free(host, door)
        return door
    except ConfigError:
        with listen(host, Door(door.what, door.option, 0)) as sock:
            return Door(door.what, door.option, sock.getsockname()[1])


def url(host: str, port: int, scheme: str = "http") -> str:
    """The address a browser on this machine can open."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    if ":" in shown and not shown.startswith("["):
        shown = f"[{shown}]"
    return f"{scheme}://{shown}:{port}"


def _resolve(host: str, door: Door) -> tuple[int, tuple[object, ...]]:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"), door.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"--host {host}: no address of that name ({error})") from error
    return family, address


def _refused(host: str, door: Door, error: OSError) -> str:
    where = f"port {door.port} ({door.what}) on {host}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is taken{_holder(door.port)}: choose another with {door.option} PORT"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} needs rights this user does not have: choose one above 1023 with {door.option} PORT"
    return f"{where} cannot be listened on ({error.strerror}): see --host and {door.option}"


def _holder(port: int) -> str:
    """Who listens there, where this user may know it; only asked once something has already gone wrong."""
    try:
        import psutil

        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except Exception:
        pass
    return ""
