"""The files of a run: `requests.jsonl`, `server.jsonl`, `summary.json`, `report.html`, `.png`.

I/O: these files, git.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.records import Record
from loadtests.series import Sample

SUMMARY = "summary.json"


def write(
    folder: Path,
    summary: Mapping[str, Any],
    records: Sequence[Record],
    samples: Sequence[Sample],
) -> None:
    """Write every file of one run; `summary.json` last, so that its presence means all of them."""
    from loadtests.html import page
    from loadtests.plots import timeline

    folder.mkdir(parents=True, exist_ok=True)
    _lines(folder / "requests.jsonl", [one.as_dict() for one in records])
    _lines(folder / "server.jsonl", [one.as_dict() for one in samples])
    timeline(records, samples, summary, folder / "report.png")
    (folder / "report.html").write_text(page(summary, [folder / "report.png"]))
    partial = folder / f"{SUMMARY}.part"
    partial.write_text(json.dumps(_plain(summary), indent=1, allow_nan=False) + "\n")
    partial.rename(folder / SUMMARY)


def read_records(folder: Path) -> list[Record]:
    """The records of a finished run."""
    with (folder / "requests.jsonl").open(encoding="utf-8") as file:
        return [Record.from_dict(json.loads(line)) for line in file]


def git_commit() -> str | None:
    """The commit of the code that measures, None outside a repository."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10,
            cwd=Path(__file__).parent,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(_plain(row)) + "\n" for row in rows))


def _plain(value: Any) -> Any:
    """JSON has no NaN: it becomes null. Times are cut to microseconds."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
