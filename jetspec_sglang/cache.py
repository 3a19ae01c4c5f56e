"""The folder of files that can be made again: `JETSPEC_CACHE`, or ~/.cache/jetspec. No I/O."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """The cache folder as an absolute path. It need not exist yet."""
    return Path(os.environ.get("JETSPEC_CACHE") or "~/.cache/jetspec").expanduser().absolute()
