"""A scenario: a fleet, its traffic and the faults put into it, read from TOML and checked with clear errors."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from tailtrace.errors import ConfigError, NotFound
from tailtrace.lab.clock import SECOND
from tailtrace.lab.constants import stream
from tailtrace.lab.effects import EFFECTS, SCALING

FOLDER = Path(__file__).parent / "scenarios"
# `NAME+no_gpm` and the like: any scenario with a part of what the fleet tells of itself taken away.
REMOVED: Final[Mapping[str, Mapping[str, Any]]] = {
    "no_gpm": {"gpm": False}, "no_sampler": {"sampler": False}, "no_steps": {"steps": False},
    "sparse_spans": {"spans": "sparse"},
}  # fmt: skip
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Service:
    """One model service: `kind` llm (continuous batching) or oneshot (dynamic batching of whole requests).

    `kv_blocks` of 16 tokens and `max_batch` are per replica; `chunk_tokens` is the token budget of one engine step.
    """

    name: str
    kind: str = "llm"
    replicas: int = 1
    model: str = "llama2-70b"
    gpu: str = "a100-80gb"
    tp: int = 4
    precision: str = "bf16"
    max_batch: int = 16
    kv_blocks: int = 4096
    chunk_tokens: int = 2048
    tokenizer_threads: int = 4
    prefix_groups: int = 32
    batch_delay_ms: float = 5.0
    version: str = "1.4.2"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that serves. `noise` scales the spread of every drawn duration."""

    gateway: str = "gateway"
    gateway_version: str = "2.1.0"
    retrieval_share: float = 0.1
    noise: float = 1.0
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests for one service: `rate` a second on average over a day, `daily` the swing around it (0 to 1).

    `tokens` scales the lengths of the real trace: short requests let a small real fleet serve many a second.
    """

    service: str
    rate: float
    source: str = "conv"
    daily: float = 0.4
    peak_hour: float = 15.0
    streaming: float = 0.85
    abort: float = 0.01
    refused: float = 0.003
    cached: float = 0.3
    tenants: int = 6
    tokens: float = 1.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the fleet tells of itself: counters of the sampler, GPM's among them, engine steps, and spans.

    `spans`: all; sparse (the engines' entry spans have no stages below them).
    """

    sampler: bool = True
    gpm: bool = True
    steps: bool = True
    spans: str = "all"


@dataclass(frozen=True, slots=True)
class Deploy:
    """`service` runs `version` from `at` on. Times are seconds from the start, or before the end when negative."""

    service: str
    version: str
    at: float

    def at_ns(self, length_ns: int) -> int:
        """Its time in a run of `length_ns`."""
        return int(self.at * SECOND) + (length_ns if self.at < 0 else 0)


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected cause. `target` is a service, `service/replica index`, or empty for wherever the cause applies."""

    code: str
    at: float
    strength: float = 1.0
    target: str = ""
    for_: float | None = None

    @property
    def service(self) -> str:
        return self.target.partition("/")[0]

    @property
    def replica(self) -> int | None:
        index = self.target.partition("/")[2]
        return int(index) if index else None

    def window_ns(self, length_ns: int) -> tuple[int, int]:
        """[start, end) of the fault in a run of `length_ns`, cut to the run."""
        start = int(self.at * SECOND) + (length_ns if self.at < 0 else 0)
        end = length_ns if self.for_ is None else start + int(self.for_ * SECOND)
        return min(max(start, 0), length_ns), min(max(end, 0), length_ns)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str = ""
    hours: float = 1.0
    fleet: Fleet = field(default_factory=Fleet)
    traffic: tuple[Traffic, ...] = ()
    deploys: tuple[Deploy, ...] = ()
    faults: tuple[Fault, ...] = ()
    evidence: Evidence = Evidence()

    def service(self, name: str) -> Service:
        return next(service for service in self.fleet.services if service.name == name)

    def without_faults(self) -> Scenario:
        """The same scenario with nothing injected: the other half of a paired comparison."""
        return dataclasses.replace(self, faults=())

    def drawn(self, seed: int) -> Scenario:
        """The same story in another fleet: up to two replicas more for each service, traffic that fits them, and
        strengths within a fifth (but those of faults that take nearly all of something: a fifth more would be all).
        """
        draw = stream(seed, "fleet")
        more = {service.name: int(draw.integers(0, 3)) for service in self.fleet.services}
        services = tuple(
            dataclasses.replace(each, replicas=each.replicas + more[each.name]) for each in self.fleet.services
        )
        grown = {each.name: 1.0 + more[each.name] / each.replicas for each in self.fleet.services}
        traffic = tuple(
            dataclasses.replace(each, rate=each.rate * grown[each.service] * float(draw.uniform(0.85, 1.1)))
            for each in self.traffic
        )
        faults = tuple(
            dataclasses.replace(each, strength=each.strength * float(draw.uniform(0.85, 1.2)))
            if all(full >= 0.5 for knob, full in EFFECTS[each.code].knobs.items() if knob in SCALING)
            else each
            for each in self.faults
        )
        fleet = dataclasses.replace(self.fleet, services=services)
        return dataclasses.replace(self, fleet=fleet, traffic=traffic, faults=faults)

    def scaled(self, rate: float, *, hold_load: bool = False) -> Scenario:
        """The same mix at `rate` requests a second in all; with `hold_load`, as much shorter ones as they are more."""
        share = rate / sum(traffic.rate for traffic in self.traffic)
        shorter = 1.0 / share if hold_load else 1.0
        traffic = tuple(
            dataclasses.replace(each, rate=each.rate * share, tokens=each.tokens * shorter) for each in self.traffic
        )
        return dataclasses.replace(self, traffic=traffic)

    def without(self, *removed: str) -> Scenario:
        """The same story with evidence taken away: names of `REMOVED`."""
        changes = {key: value for name in removed for key, value in REMOVED[name].items()}
        name = "+".join([self.name, *removed])
        return dataclasses.replace(self, name=name, evidence=dataclasses.replace(self.evidence, **changes))

    @staticmethod
    def load(name: str | Path) -> Scenario:
        """A scenario of the package by name, or a TOML file by path; `+no_gpm`, `+no_sampler`, `+no_steps` and
        `+sparse_spans` behind either take that evidence away.

        Raises NotFound for an unknown name, ConfigError for a file that cannot be run.
        """
        base, plus, last = str(name).rpartition("+")
        if plus and last in REMOVED:
            return Scenario.load(base).without(last)
        path = Path(name)
        if path.suffix != ".toml":
            path = FOLDER / f"{name}.toml"
            if not path.is_file():
                raise NotFound(
                    f"no scenario {str(name)!r}; there are {', '.join(list_scenarios())} (or give a .toml file)"
                )
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise NotFound(f"scenario file {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"scenario file {path.name} is not TOML: {error}") from None
        return parse(table, path.stem)


def list_scenarios() -> dict[str, str]:
    """Name -> title of each scenario of the package."""
    return {path.stem: Scenario.load(path).title for path in sorted(FOLDER.glob("*.toml"))}


def parse(table: Mapping[str, Any], name: str) -> Scenario:
    """Raises ConfigError that names the table, the key, what was expected and what came."""
    table = dict(table)
    fleet_table = table.pop("fleet", {})
    if not isinstance(fleet_table, Mapping):
        raise ConfigError(f"[fleet]: expected a table, got {fleet_table!r}")
    fleet_table = dict(fleet_table)
    services = tuple(
        _read(Service, each, f"[[fleet.service]] {n}") for n, each in _tables(fleet_table, "service", "fleet.")
    )
    evidence = _read(Evidence, table.pop("evidence", {}), "[evidence]")
    fleet = dataclasses.replace(_read(Fleet, fleet_table, "[fleet]", {"services"}), services=services)
    traffic = tuple(_read(Traffic, each, f"[[traffic]] {n}") for n, each in _tables(table, "traffic"))
    deploys = tuple(_read(Deploy, each, f"[[deploy]] {n}") for n, each in _tables(table, "deploy"))
    faults = tuple(_read(Fault, each, f"[[cause]] {n}") for n, each in _tables(table, "cause"))
    scenario = dataclasses.replace(
        _read(Scenario, {"name": name, **table}, "the scenario", {"fleet", "traffic", "deploys", "faults", "evidence"}),
        fleet=fleet, traffic=traffic, deploys=deploys, faults=faults, evidence=evidence,
    )  # fmt: skip
    _check(scenario)
    return scenario


def _tables(table: dict[str, Any], key: str, prefix: str = "") -> list[tuple[int, Mapping[str, Any]]]:
    value = table.pop(key, [])
    value = [value] if isinstance(value, Mapping) else value
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise ConfigError(f"[[{prefix}{key}]]: expected tables, got {value!r}")
    return list(enumerate(value, 1))


def _read(kind: type[_T], table: Mapping[str, Any], where: str, skip: set[str] = frozenset()) -> _T:  # type: ignore[assignment]
    hints = get_type_hints(kind)
    fields = {each.name.rstrip("_"): each for each in dataclasses.fields(kind) if each.name not in skip}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(fields)}")
        values[fields[key].name] = _value(hints[fields[key].name], value, key, where)
    for key, each in fields.items():
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING and key not in table:
            raise ConfigError(f"{where}: {key!r} is missing")
    return kind(**values)


def _value(hint: Any, value: Any, key: str, where: str) -> Any:
    if hint is str:
        if isinstance(value, str):
            return value
    elif hint is bool:
        if isinstance(value, bool):
            return value
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif (
        key in ("at", "for") and isinstance(value, str) and (match := re.fullmatch(r"(-?\d+(?:\.\d+)?)([smhd])", value))
    ):
        return float(match[1]) * _UNITS[match[2]]
    wanted = {str: "a string", int: "an integer", bool: "true or false"}.get(
        hint, 'seconds or "90s", "20m", "-5h"' if key in ("at", "for") else "a number"
    )
    raise ConfigError(f"{where}: {key} must be {wanted}, got {value!r}")


def _check(scenario: Scenario) -> None:
    names = [service.name for service in scenario.fleet.services]
    if not names:
        raise ConfigError("[[fleet.service]]: at least one service is needed")
    if len(set(names)) < len(names):
        raise ConfigError(f"[[fleet.service]]: names must differ, got {', '.join(names)}")
    if not scenario.traffic:
        raise ConfigError("[[traffic]]: at least one table is needed")
    for service in scenario.fleet.services:
        if service.kind not in ("llm", "oneshot"):
            raise ConfigError(f"service {service.name}: kind must be llm or oneshot, got {service.kind!r}")
        if (
            min(service.replicas, service.max_batch, service.kv_blocks, service.chunk_tokens, service.tokenizer_threads)
            < 1
        ):
            raise ConfigError(
                f"service {service.name}: counts (replicas, max_batch, kv_blocks, chunk_tokens, ...) must be 1 or more"
            )
    for traffic in scenario.traffic:
        if traffic.service not in names:
            raise ConfigError(f"[[traffic]]: no service {traffic.service!r}; there are {', '.join(names)}")
        if traffic.rate <= 0 or traffic.source not in ("conv", "code"):
            raise ConfigError(f"[[traffic]] {traffic.service}: rate must be above 0 and source conv or code")
        for share in ("daily", "streaming", "abort", "refused", "cached"):
            if not 0 <= getattr(traffic, share) <= 1:
                raise ConfigError(
                    f"[[traffic]] {traffic.service}: {share} must be between 0 and 1, got {getattr(traffic, share)}"
                )
    for deploy in scenario.deploys:
        if deploy.service not in names:
            raise ConfigError(f"[[deploy]]: no service {deploy.service!r}; there are {', '.join(names)}")
    if scenario.evidence.spans not in ("all", "sparse"):
        raise ConfigError(f"[evidence]: spans must be all or sparse, got {scenario.evidence.spans!r}")
    for fault in scenario.faults:
        if fault.code not in EFFECTS:
            raise ConfigError(f"[[cause]]: the lab cannot make {fault.code!r}; it can make {', '.join(EFFECTS)}")
        if fault.strength < 0:
            raise ConfigError(f"[[cause]] {fault.code}: strength must be 0 or more, got {fault.strength}")
        if fault.for_ is not None and fault.for_ <= 0:
            raise ConfigError(f"[[cause]] {fault.code}: for must be above 0, got {fault.for_}")
        _check_target(scenario, fault)
        if fault.code == "scale_up_late" and any(
            service.replicas < 2
            for service in scenario.fleet.services
            if service.kind == "llm" and fault.service in ("", service.name)
        ):
            raise ConfigError("[[cause]] scale_up_late: the last replica comes late, so the service needs two")


def _check_target(scenario: Scenario, fault: Fault) -> None:
    names = [service.name for service in scenario.fleet.services]
    service, slash, replica = fault.target.partition("/")
    if service and service not in names:
        raise ConfigError(f"[[cause]] {fault.code}: no target {fault.target!r}; there are {', '.join(names)}")
    count = scenario.service(service).replicas if service else 0
    if slash and not (replica.isdigit() and int(replica) < count):
        raise ConfigError(f"[[cause]] {fault.code}: {fault.target!r} is no replica of {service} (0 to {count - 1})")
