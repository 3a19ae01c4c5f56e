"""Tests of one group run in one worker, whatever pytest and xdist do to node ids."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PROBE = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(4))
@pytest.mark.xdist_group("{group}")
def test_probe(number):
    with open(pathlib.Path({folder!r}) / f"{group}-{name}-{{number}}", "w") as said:
        said.write(os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.full
def test_a_group_over_two_files_runs_in_one_worker(tmp_path):
    said = tmp_path / "said"
    said.mkdir()
    for group, name in (("shared", "a"), ("shared", "b"), ("other", "c")):
        text = PROBE.format(group=group, name=name, folder=str(said))
        (tmp_path / f"test_{name}.py").write_text(text)
    words = ["-p", "tests.conftest", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words, str(tmp_path)],
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    workers = {path.name: path.read_text() for path in said.iterdir()}
    assert len(workers) == 12
    shared = {worker for name, worker in workers.items() if name.startswith("shared")}
    other = {worker for name, worker in workers.items() if name.startswith("other")}
    assert len(shared) == len(other) == 1
    assert shared != other
