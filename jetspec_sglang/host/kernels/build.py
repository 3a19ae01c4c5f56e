"""Compiles the C++ sources of this package once per machine and per version of the sources.

Does file I/O in the cache folder and runs the compiler. The library's name holds a hash of the
sources, the flags and the CPU's features, so an upgrade, or another CPU with a shared home folder,
never loads an old library. A library that exists needs no compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from jetspec_sglang.cache import cache_dir

SOURCES = Path(__file__).parent
# No contraction: a fused multiply-add is written as one where it is meant, so that equal
# arithmetic gives equal bits wherever it is inlined.
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=off"),
    *("-fopenmp", "-fvisibility=hidden", "-shared", "-fPIC"),
)


class BuildError(RuntimeError):
    """The native library cannot be built here; the message says what to do."""


def library_path() -> Path:
    """Path of the compiled library, compiling it first where it does not exist.

    Safe to call from several processes at once: one compiles, the others wait.
    """
    path = cache_dir() / "native" / f"libjetspec-{_key()}.so"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            _compile(path)
    return path


def _compile(path: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        raise BuildError(
            f"no C++ compiler: {os.environ.get('CXX') or 'g++'} is not on PATH; install one with "
            "`apt-get install g++`"
        )
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    sources = [str(source) for source in sorted(SOURCES.glob("*.cpp"))]
    command = [compiler, *FLAGS, *sources, "-o", str(unfinished)]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise BuildError(f"{' '.join(command)} failed:\n{result.stderr[-4000:]}")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _key() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.hpp")]):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    digest.update(_cpu().encode())
    return digest.hexdigest()[:16]


def _cpu() -> str:
    """What `-march=native` depends on: the feature flags of the first CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = [line for line in lines if line.lower().startswith(("flags", "features"))]
    return platform.machine() + (features[0] if features else platform.processor())
