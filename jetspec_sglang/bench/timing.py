"""Wall-clock timing of small functions: repeats, median and spread. No I/O."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call over several repeats."""

    median: float
    fastest: float
    slowest: float

    def __str__(self) -> str:
        median, low, high = (f"{1e6 * t:.0f}" for t in (self.median, self.fastest, self.slowest))
        return f"{median} ({low}-{high})"


def measure(call: Callable[[], object], repeats: int = 7, seconds: float = 0.05) -> Timing:
    """Time `call`, after one warm-up, in `repeats` runs of about `seconds` each."""
    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    calls = max(1, int(seconds / max(first, 1e-6)))
    runs = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        runs.append((time.perf_counter() - start) / calls)
    return Timing(statistics.median(runs), min(runs), max(runs))
