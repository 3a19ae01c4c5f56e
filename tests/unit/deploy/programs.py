"""Runs the linters that the environment holds: they lie beside the shared packages, not on PATH."""

from __future__ import annotations

import subprocess
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def program(package: str, name: str) -> str:
    """Path of a program that `package` installed."""
    found = distribution(package)
    for file in found.files or ():
        if file.name == name and file.parent.name == "bin":
            return str(Path(str(found.locate_file(file))).resolve())
    raise AssertionError(f"{package} has no program {name}")


def run(command: list[str], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def passes(command: list[str], **options) -> str:
    """The program's output; an AssertionError with all it said where it fails."""
    result = run(command, **options)
    assert result.returncode == 0, f"{' '.join(command)}:\n{result.stdout}{result.stderr}"
    return result.stdout
