"""Resident memory of a server's processes over time, and whether it grows.

Contract: `slopes` is pure; `Watch` samples in a thread. I/O: /proc, one file.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

EVERY_S = 5.0
MIB = float(1 << 20)
LEAST_S = 60.0
"""A slope over less says nothing."""


class Watch:
    """Appends (seconds, MiB by process) to a file, for the given roots and their children."""

    def __init__(self, roots: Mapping[str, Any], file: Path) -> None:
        """`roots`: a name -> a function that gives the process id, or None."""
        self._roots, self._file = dict(roots), file
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        start = time.monotonic()
        with self._file.open("w") as out:
            while True:
                row = {"at": round(time.monotonic() - start, 1), "mib": self._sample()}
                out.write(json.dumps(row) + "\n")
                out.flush()
                if self._ended.wait(EVERY_S):
                    return

    def _sample(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for root, pid_of in self._roots.items():
            pid = pid_of()
            if pid is None:
                continue
            try:
                parent = psutil.Process(pid)
                for process in (parent, *parent.children(recursive=True)):
                    name = f"{root}: {process_name(process)}"
                    found[name] = found.get(name, 0.0) + process.memory_info().rss / MIB
            except psutil.NoSuchProcess:
                continue
        return found


def process_name(process: psutil.Process) -> str:
    """`scheduler`, `detokenizer` or the program's own name."""
    line = process.cmdline()
    title = line[0] if line else process.name()
    for part in ("scheduler", "detokenizer"):
        if part in title:
            return part
    return Path(title).name.split(" ")[0][:30]


def read(file: Path) -> dict[str, list[tuple[float, float]]]:
    """Process -> (seconds, MiB)."""
    series: dict[str, list[tuple[float, float]]] = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        for name, mib in row["mib"].items():
            series.setdefault(name, []).append((row["at"], mib))
    return series


def slopes(
    series: Mapping[str, Iterable[tuple[float, float]]],
) -> dict[str, dict[str, float | None]]:
    """First and last MiB, and MiB per hour over the last two thirds, by least squares."""
    found = {}
    for name, values in series.items():
        points = np.asarray(list(values))
        late = points[points[:, 0] >= points[0, 0] + (points[-1, 0] - points[0, 0]) / 3]
        enough = len(late) > 2 and late[-1, 0] - late[0, 0] >= LEAST_S
        slope = 3600 * float(np.polyfit(late[:, 0], late[:, 1], 1)[0]) if enough else None
        found[name] = {
            "first_mib": float(points[0, 1]),
            "last_mib": float(points[-1, 1]),
            "slope_mib_per_hour": slope,
        }
    return found
