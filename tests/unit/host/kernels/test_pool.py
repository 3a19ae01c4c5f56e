"""The kernels' thread pool: results that do not depend on it, callers at once, forks, bad counts."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from jetspec_sglang.host.kernels import build, linear, pack, set_threads, threads

INPUTS, OUTPUTS = 192, 1000
GENERATOR = torch.Generator().manual_seed(5)
WEIGHT = torch.randn(OUTPUTS, INPUTS, generator=GENERATOR)


@contextmanager
def shared_among(count: int) -> Iterator[None]:
    set_threads(count)
    try:
        yield
    finally:
        set_threads(None)


def results(rows: int = 40, repeats: int = 20) -> list[torch.Tensor]:
    x = torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(rows))
    packed = pack(WEIGHT)
    return [linear(x, packed) for _ in range(repeats)]


@pytest.mark.parametrize("count", [2, 3, 16])
def test_every_task_is_done_once_with_any_number_of_threads(count: int):
    with shared_among(1):
        (alone,) = results(repeats=1)
    with shared_among(count):
        for result in results():
            assert torch.equal(result, alone)


def test_several_callers_at_once():
    with shared_among(1):
        expected = {rows: results(rows, 1)[0] for rows in range(20, 28)}
    with shared_among(4), ThreadPoolExecutor(8) as callers:
        for rows, found in zip(expected, callers.map(results, expected), strict=True):
            assert all(torch.equal(one, expected[rows]) for one in found)


def test_a_forked_child_has_a_pool_of_its_own():
    with shared_among(4):
        # Few rows: torch compares them without its own threads, which no child may use.
        (expected,) = results(rows=20, repeats=1)
        child = os.fork()
        if child == 0:
            same = all(torch.equal(one, expected) for one in results(rows=20))
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_follows_torch_until_a_number_is_set():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert threads() == 3
        with shared_among(2):
            assert threads() == 2
        assert threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, -1, 257])
def test_a_wrong_number_is_refused(count: int):
    with pytest.raises(ValueError, match=f"threads {count}: must be from 1 to 256"):
        set_threads(count)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_no_data_race(tmp_path: Path):
    program = tmp_path / "race"
    source = Path(__file__).with_name("pool_race.cpp")
    pool = build.SOURCES / "pool.cpp"
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", "-march=native", f"-I{build.SOURCES}"]
    command = ["g++", *flags, str(source), str(pool), "-fopenmp", "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    result = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stdout) == (0, "bad 0\n"), result.stderr[:2000]
