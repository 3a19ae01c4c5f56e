"""The load generator as a child process: one run, one folder.

Contract: the folder appears under its name only when the run is finished. I/O: processes, files.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import loadtests
from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.supervise import end, start
from loadtests.results import SUMMARY

ROOT = Path(loadtests.__file__).parents[1]
WRONG = 2
"""Locust's exit status for options, a server or a trace that cannot be used."""


def command(url: str, folder: Path, options: Mapping[str, str]) -> list[str]:
    """The command line of one run; an option with an empty value is a switch."""
    given = [
        part
        for name, value in options.items()
        for part in ([f"--{name}", value] if value else [f"--{name}"])
    ]
    return [
        *(sys.executable, "-m", "loadtests", "--headless", "--only-summary", "--host", url),
        *given,
        *("--report-dir", str(folder)),
    ]


def launch(url: str, folder: Path, options: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a run whose report goes to `folder`, its output to `folder`.log."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    # The log lies in $0, so that every argument reaches the program as it is.
    shell = ["sh", "-c", 'cd "$1" && shift && exec "$@" >"$0" 2>&1', str(log), str(ROOT)]
    return start([*shell, *command(url, folder.resolve(), options)])


def run(url: str, folder: Path, options: Mapping[str, str]) -> dict[str, Any]:
    """One finished run. CommandError where there is no report."""
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    child = launch(url, partial, options)
    try:
        child.wait()
    finally:
        end(child, signal.SIGTERM, 20.0)
    return finished(child.returncode, partial, folder)


def finished(status: int, partial: Path, folder: Path) -> dict[str, Any]:
    """Move a run's report to its place; its summary."""
    if status == WRONG or not (partial / SUMMARY).exists():
        log = partial.with_name(f"{partial.name}.log")
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise CommandError(f"the load generator ended with {status}: {''.join(last)} (see {log})")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
    return summary
