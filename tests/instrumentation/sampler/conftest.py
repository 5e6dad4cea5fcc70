"""The C stub under the real pynvml, built once a test process; skipped, with the reason, without a C compiler."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tailtrace.instrumentation.otlp import Point
from tailtrace.instrumentation.sampler.absences import Absences
from tailtrace.instrumentation.sampler.calls import Meters
from tailtrace.instrumentation.sampler.drops import Drops
from tailtrace.instrumentation.sampler.gpus import Gpus

STUB = Path(__file__).resolve().parents[2] / "nvml_stub" / "__init__.py"


def _stub_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nvml_stub", STUB)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nvml_stub"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return Path(_stub_module().build(tmp_path_factory.mktemp("nvml")))
    except FileNotFoundError as error:
        print(f"\n{error}", file=sys.stderr)
        pytest.skip(str(error))


@pytest.fixture
def stub(library: Path) -> Any:
    """Fresh: 8 GPUs of Hopper kind, driver 580, nothing wrong."""
    made = _stub_module().Stub(library)
    made.install()
    return made


class Host:
    """GPUs read at a clock of the test: `tick` moves it by one fast interval unless told otherwise."""

    def __init__(self, *, listen: bool = False) -> None:
        self.absences, self.drops, self.meters = Absences(), Drops(), Meters()
        self.points: list[Point] = []
        self.gpus = Gpus(self.points.extend, self.absences, self.meters, self.drops, interval_s=0.25, listen=listen)
        self.now_s = 1000.0

    def tick(self, times: int = 1, seconds: float = 0.25) -> list[Point]:
        """The points of these ticks."""
        self.points.clear()
        for _ in range(times):
            self.gpus.tick(self.now_s)
            self.now_s += seconds
        return list(self.points)


@pytest.fixture
def host(stub: Any) -> Iterator[Host]:
    made = Host()
    yield made
    made.gpus.close()


@pytest.fixture
def new_host(stub: Any) -> Iterator[Callable[..., Host]]:
    made: list[Host] = []

    def make(**options: Any) -> Host:
        made.append(Host(**options))
        return made[-1]

    yield make
    for host in made:
        host.gpus.close()
