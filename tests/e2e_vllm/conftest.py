"""Real vLLM: set TAILTRACE_VLLM_DIR to a folder with it (docs/vllm.md), or `make test-vllm VLLM=DIR`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))


@pytest.fixture(scope="session")
def vllm() -> Path:
    folder = os.environ.get("TAILTRACE_VLLM_DIR", "")
    if not folder:
        pytest.skip("needs TAILTRACE_VLLM_DIR")
    return Path(folder)
