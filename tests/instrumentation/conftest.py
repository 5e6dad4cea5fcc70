"""Async tests of this room run on asyncio, through anyio's plugin."""

import pytest
from hypothesis import settings

# Nothing here is timed: a busy machine is no failure.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
