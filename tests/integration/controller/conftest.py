"""Async tests run on asyncio; what each test needs from the machine is asked for here."""

from __future__ import annotations

import shutil

import pytest

from tests.support.ports import free_port


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def prometheus() -> str:
    """Path of the real Prometheus."""
    return _program("prometheus", "apt-get install prometheus")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a real Chromium, with its driver beside it."""
    _program("chromedriver", "apt-get install chromium-driver")
    return _program("chromium", "apt-get install chromium")


def _program(name: str, how: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed; {how}")
    return path


@pytest.fixture
def unused_port() -> int:
    return free_port()
