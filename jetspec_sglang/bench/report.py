"""Markdown tables, the machine they were measured on, and their place in a document.

Contract: a document keeps a table between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`;
`write_section` replaces the text between them. I/O: that file, /proc/cpuinfo.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its header."""
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine() -> dict[str, str]:
    """What a reader needs to place the figures."""
    names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return {
        "cpu": names[0].strip() if names else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "threads": os.environ.get("OMP_NUM_THREADS", "default"),
        "torch": version("torch"),
        "sglang": version("sglang"),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def machine_line() -> str:
    return ", ".join(f"{key} {value}" for key, value in machine().items()) + "."


def replace_section(text: str, name: str, body: str) -> str:
    """`text` with `body` between the markers of `name`. ValueError unless each is there once."""
    opening, closing = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    if text.count(opening) != 1 or text.count(closing) != 1:
        raise ValueError(f"must contain {opening} and {closing} exactly once")
    before, _, rest = text.partition(opening)
    if closing not in rest:
        raise ValueError(f"{closing} must come after {opening}")
    return f"{before}{opening}\n{body.strip()}\n{closing}{rest.partition(closing)[2]}"


def write_section(file: Path, name: str, body: str) -> None:
    """Put `body` in its place in `file`."""
    try:
        file.write_text(replace_section(file.read_text(), name, body))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
