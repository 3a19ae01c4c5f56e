"""The head that goes with the embedded target. I/O: looks whether the shipped folder exists."""

import os
from pathlib import Path

SHIPPED = Path(__file__).parent.parent / "assets" / "head"


def head_path() -> str | None:
    """`JETSPEC_HEAD` (a folder or hub id) if set, else the shipped head's folder if there is one."""
    chosen = os.environ.get("JETSPEC_HEAD")
    if chosen:
        return chosen
    return str(SHIPPED) if (SHIPPED / "config.json").is_file() else None
