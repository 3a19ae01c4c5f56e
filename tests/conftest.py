"""Settings that all tests share: what they may find on the machine, and which need a GPU."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from jetspec_sglang import families
from jetspec_sglang.cache import cache_dir
from tests.support.groups import ByGroup, write_groups

# Machines that run the tests are shared and slow at times; a test's time limit is pytest's.
settings.register_profile("shared-machine", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=300)
"""`--hypothesis-profile=thorough`, as in `make test-full`: three times as many examples."""
settings.load_profile("shared-machine")

RECORDINGS = "JETSPEC_TEST_RECORDINGS"
"""Folder of plain decoding's recorded answers; `.ci/run` gives an empty one."""

REUSED = ("models", "native")
"""Folders of the cache whose files are named by a hash of everything that they are made from."""

_scratch: list[tuple[Path, str | None]] = []


def pytest_configure(config: pytest.Config) -> None:
    """A cache folder of this run's own, so that no controller state or lock of an earlier run counts.

    Every SGLang of this run imports only the models that the tests use.
    """
    if hasattr(config, "workerinput"):
        return  # xdist's workers inherit the folder
    machine = cache_dir()
    os.environ.setdefault(RECORDINGS, str(machine / "tests"))
    own = Path(tempfile.mkdtemp(prefix="jetspec-tests-"))
    for name in REUSED:
        (machine / name).mkdir(parents=True, exist_ok=True)
        (own / name).symlink_to(machine / name)
    _scratch.append((own, os.environ.get("JETSPEC_CACHE")))
    os.environ["JETSPEC_CACHE"] = str(own)
    os.environ.setdefault(families.VARIABLE, families.PACKAGE)


def pytest_unconfigure() -> None:
    for folder, before in _scratch:
        shutil.rmtree(folder, ignore_errors=True)
        if before is None:
            del os.environ["JETSPEC_CACHE"]
        else:
            os.environ["JETSPEC_CACHE"] = before


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU; torch sees none here"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        write_groups(session.items)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    return ByGroup(config, log) if config.getoption("dist") == "loadgroup" else None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
