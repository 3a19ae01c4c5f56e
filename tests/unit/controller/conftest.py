"""Async tests of the controller run on asyncio; `make` starts a controller on fake servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.support.rig import Rig, rig

Make = Callable[..., AbstractAsyncContextManager[Rig]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return partial(rig, tmp_path)
