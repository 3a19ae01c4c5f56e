from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from jetspec_sglang.host.kernels import build
from jetspec_sglang.host.kernels.library import load


@pytest.fixture
def sources(tmp_path: Path, monkeypatch) -> Path:
    """A tiny library of its own, and an empty cache."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "one.cpp").write_text('extern "C" int one() { return 1; }')
    monkeypatch.setattr(build, "SOURCES", folder)
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "cache"))
    return folder


def test_builds_once_and_again_after_a_change(sources: Path):
    first = build.library_path()
    written = first.stat().st_mtime_ns
    assert build.library_path() == first
    assert first.stat().st_mtime_ns == written
    (sources / "one.cpp").write_text('extern "C" int one() { return 2; }')
    assert build.library_path() != first


def test_concurrent_builds_compile_once(sources: Path, monkeypatch):
    compiled = []
    compile_once = build._compile
    monkeypatch.setattr(build, "_compile", lambda path: (compiled.append(path), compile_once(path)))
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: build.library_path(), range(4)))
    assert len(set(paths)) == len(compiled) == 1


def test_a_built_library_needs_no_compiler(sources: Path, monkeypatch):
    path = build.library_path()
    monkeypatch.setenv("PATH", "")
    assert build.library_path() == path


def test_no_compiler_says_what_to_install(sources: Path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(build.BuildError, match=r"g\+\+ is not on PATH.*apt-get install g\+\+"):
        build.library_path()


def test_a_failed_build_leaves_nothing_behind(sources: Path, tmp_path: Path):
    (sources / "one.cpp").write_text("this is no C++")
    with pytest.raises(build.BuildError, match="failed"):
        build.library_path()
    assert {path.suffix for path in (tmp_path / "cache/native").iterdir()} <= {".lock"}


def test_shares_the_thread_pool_of_torch():
    """A second OpenMP runtime would have its own thread count, and its threads would compete."""
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert load().omp_get_max_threads() == count
    finally:
        torch.set_num_threads(threads)
