"""A libnvidia-ml.so.1 for machines without a GPU: built by who needs it, loaded under the real pynvml."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml_stub.c")
NAME = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """Compile the stub into `folder`. Raises FileNotFoundError, with the reason, where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("the NVML stub is C and needs gcc or cc, which is not on the PATH (apt install gcc)")
    library = folder / NAME
    command = [
        compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", f"-Wl,-soname,{NAME}",
        "-o", str(library), str(SOURCE), "-lm", "-lpthread",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return library


class Stub:
    """The stub under the real pynvml of this process."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.stub_set.argtypes = [ctypes.c_char_p, ctypes.c_double]

    def install(self) -> None:
        import pynvml

        self._library.stub_reset()
        pynvml.nvmlLib = self._library
        pynvml._nvmlGetFunctionPointer_cache.clear()

    def set(self, **values: float) -> None:
        """`stub.set(gpus=2, **{"err.nvmlDeviceGetUtilizationRates": 3})`."""
        for key, value in values.items():
            self._library.stub_set(key.encode(), float(value))

    def without(self, symbol: str) -> Any:
        """Make the library look like an old driver's: this function is not in it."""
        import pynvml

        pynvml.nvmlLib = _Without(self._library, symbol)
        pynvml._nvmlGetFunctionPointer_cache.clear()


class _Without:
    def __init__(self, library: Any, *symbols: str) -> None:
        self._library, self._symbols = library, symbols

    def __getattr__(self, name: str) -> Any:
        if name in self._symbols:
            raise AttributeError(name)
        return getattr(self._library, name)
