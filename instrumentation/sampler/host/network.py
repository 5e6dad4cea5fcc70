"""TCP retransmits, timeouts and refused connections; bytes and losses of the interfaces. Of this network namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.host.counts import Count
from tailtrace.instrumentation.sampler.host.files import KeptFile

_TCP: Final = {
    "snmp": {
        (b"Tcp:", b"RetransSegs"): "tailtrace.host.tcp.retransmits",
        (b"Tcp:", b"OutSegs"): "tailtrace.host.tcp.segments",
    },
    "netstat": {
        (b"TcpExt:", b"TCPTimeouts"): "tailtrace.host.tcp.timeouts",
        (b"TcpExt:", b"ListenDrops"): "tailtrace.host.tcp.listen_drops",
    },
}
_COLUMNS: Final = {
    ("receive", "bytes"): 0, ("receive", "error"): 2, ("receive", "drop"): 3,
    ("transmit", "bytes"): 8, ("transmit", "error"): 10, ("transmit", "drop"): 11,
}  # fmt: skip


class Network:
    """Reads snmp, netstat and dev of /proc/net."""

    def __init__(self, absences: Absences, proc: Path) -> None:
        self._absences = absences
        self._tables = [_Table(KeptFile(proc / "net" / name), wanted) for name, wanted in _TCP.items()]
        self._dev = KeptFile(proc / "net" / "dev")
        self._interfaces = [(column, self._count(*key)) for key, column in _COLUMNS.items()]

    def tick(self, unix_ns: int, points: list[Point]) -> None:
        for table in self._tables:
            values = table.read()
            for metric, count in table.counts.items():
                if metric in values:
                    count.add(values[metric], unix_ns, points)
                else:
                    self._absences.note(metric, table.file.reason or "no_column")
        content = self._dev.read()
        if content is None:
            self._absences.note("tailtrace.host.network.io", str(self._dev.reason))
            return
        sums = [0] * len(self._interfaces)
        for line in content.splitlines()[2:]:
            name, _, numbers = line.partition(b":")
            if name.strip() != b"lo":
                words = numbers.split()
                for index, (column, _) in enumerate(self._interfaces):
                    sums[index] += int(words[column])
        for total, (_, count) in zip(sums, self._interfaces, strict=True):
            count.add(total, unix_ns, points)

    @staticmethod
    def _count(direction: str, kind: str) -> Count:
        attributes = {"network.io.direction": direction}
        if kind == "bytes":
            return Count("tailtrace.host.network.io", attributes)
        return Count("tailtrace.host.network.errors", {**attributes, "tailtrace.kind": kind})


class _Table:
    """A file of pairs of lines, names and numbers: of its hundreds of columns those that are wanted."""

    def __init__(self, file: KeptFile, wanted: dict[tuple[bytes, bytes], str]) -> None:
        self.file = file
        self.counts = {metric: Count(metric) for metric in wanted.values()}
        self._wanted = wanted
        self._places: dict[bytes, list[tuple[int, str]]] = {}

    def read(self) -> dict[str, int]:
        """Values by metric; a column that the file lacks is left out."""
        lines = (self.file.read() or b"").splitlines()
        found: dict[str, int] = {}
        for names, numbers in zip(lines[::2], lines[1::2], strict=False):
            places = self._places.get(names)
            if places is None:
                places = self._places[names] = self._look(names)
            if places:
                words = numbers.split()
                found.update((metric, int(words[at])) for at, metric in places if at < len(words))
        return found

    def _look(self, names: bytes) -> list[tuple[int, str]]:
        prefix, *columns = names.split() or [b""]
        return [
            (at, self._wanted[prefix, column])
            for at, column in enumerate(columns, start=1)
            if (prefix, column) in self._wanted
        ]
