"""Timing of small functions: repeats, median and spread. No I/O."""

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

    def per(self, parts: int) -> Timing:
        """The time of one of `parts` equal parts of a call."""
        return Timing(self.median / parts, self.fastest / parts, self.slowest / parts)


def measure(
    call: Callable[[], object],
    repeats: int = 7,
    seconds: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time `call`, after one warm-up, in `repeats` runs of about `seconds` each.

    On a busy machine `time.thread_time` as the clock leaves other processes out; it measures only
    the calling thread, so give it single-threaded work.
    """
    start = clock()
    call()
    first = clock() - start
    calls = max(1, int(seconds / max(first, 1e-6)))
    runs = []
    for _ in range(repeats):
        start = clock()
        for _ in range(calls):
            call()
        runs.append((clock() - start) / calls)
    return Timing(statistics.median(runs), min(runs), max(runs))
