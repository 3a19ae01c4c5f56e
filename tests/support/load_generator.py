"""Runs of the load generator's command in these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCUST = Path(sys.executable).with_name("locust")
LOCUSTFILE = ROOT / "loadtests" / "locustfile.py"


@dataclass(frozen=True)
class Ended:
    """What a run printed, its exit status, and its report if it wrote one."""

    status: int
    output: str
    folder: Path

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self._rows("requests.jsonl")

    @property
    def samples(self) -> list[dict[str, Any]]:
        return self._rows("server.jsonl")

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


def start(url: str, folder: Path, *options: str) -> subprocess.Popen[str]:
    """`locust -f loadtests/locustfile.py --headless` from another folder than the repository's."""
    command = [
        *(str(LOCUST), "-f", str(LOCUSTFILE), "--headless", "--only-summary", "--host", url),
        *("--report-dir", str(folder), *options),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENAI_API_KEY": ""},
    )  # fmt: skip


def run(url: str, folder: Path, *options: str, seconds: float = 120.0) -> Ended:
    """A whole run."""
    return ended(start(url, folder, *options), folder, seconds)


def ended(process: subprocess.Popen[str], folder: Path, seconds: float = 60.0) -> Ended:
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ended(process.returncode, output, folder)
