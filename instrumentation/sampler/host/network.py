"""TCP retransmits, timeouts and refused connections; bytes and losses of the interfaces. Of this network namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile

_TCP: Final = {
    ("snmp", "Tcp:", "RetransSegs"): "tailtrace.host.tcp.retransmits",
    ("snmp", "Tcp:", "OutSegs"): "tailtrace.host.tcp.segments",
    ("netstat", "TcpExt:", "TCPTimeouts"): "tailtrace.host.tcp.timeouts",
    ("netstat", "TcpExt:", "ListenDrops"): "tailtrace.host.tcp.listen_drops",
}
_COLUMNS: Final = {
    ("receive", "bytes"): 0, ("receive", "error"): 2, ("receive", "drop"): 3,
    ("transmit", "bytes"): 8, ("transmit", "error"): 10, ("transmit", "drop"): 11,
}  # fmt: skip


class Network:
    """Reads snmp, netstat and dev of /proc/net."""

    def __init__(self, absences: Absences, proc: Path) -> None:
        self._absences = absences
        self._files = {name: KeptFile(proc / "net" / name) for name in ("snmp", "netstat", "dev")}
        self._tcp = {key: Count(metric) for key, metric in _TCP.items()}
        self._interfaces = {key: self._count(*key) for key in _COLUMNS}

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        tables = {name: self._table(name) for name in ("snmp", "netstat")}
        for (name, prefix, column), count in self._tcp.items():
            value = tables[name].get((prefix, column))
            if value is None:
                self._absences.note(_TCP[name, prefix, column], self._files[name].reason or "no_column")
            else:
                count.add(value, unix_ns, points)
        content = self._files["dev"].read()
        if content is None:
            self._absences.note("tailtrace.host.network.io", str(self._files["dev"].reason))
            return
        sums = [0] * 16
        for line in content.decode("ascii", "replace").splitlines()[2:]:
            name, _, numbers = line.partition(":")
            if name.strip() != "lo":
                sums = [total + int(number) for total, number in zip(sums, numbers.split(), strict=False)]
        for key, count in self._interfaces.items():
            if len(sums) > _COLUMNS[key]:
                count.add(sums[_COLUMNS[key]], unix_ns, points)

    def _table(self, name: str) -> dict[tuple[str, str], int]:
        """Both files have pairs of lines: names, then numbers."""
        lines = (self._files[name].read() or b"").decode("ascii", "replace").splitlines()
        found = {}
        for names, numbers in zip(lines[::2], lines[1::2], strict=False):
            prefix, *columns = names.split()
            for column, number in zip(columns, numbers.split()[1:], strict=False):
                found[prefix, column] = int(number)
        return found

    @staticmethod
    def _count(direction: str, kind: str) -> Count:
        attributes = {"network.io.direction": direction}
        if kind == "bytes":
            return Count("tailtrace.host.network.io", attributes)
        return Count("tailtrace.host.network.errors", {**attributes, "tailtrace.kind": kind})
