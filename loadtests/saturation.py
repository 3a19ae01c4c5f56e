"""Over-saturation: does the backlog of an open loop grow during the whole run? Pure.

A line is fitted to the number of running requests over the window. Its slope is the share of the
arrivals that the server does not complete. The run counts as over-saturated when that part is at
least a tenth, the last third holds clearly more requests than the first, and the time to the first
token rises with the time of arrival (Mann-Kendall, one-sided, 1 %).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtests.records import Record

UNSERVED_SHARE = 0.1
LEAST_REQUESTS = 10
_Z_ONE_PERCENT = 2.326
_GROWTH = 1.5
_GRID_S = 0.25
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Saturation:
    """`unserved_share`: growth of the backlog over the arrival rate; `z`: of the trend test."""

    over: bool
    unserved_share: float
    z: float


def saturation(records: Sequence[Record], start: float, end: float) -> Saturation:
    """Judge the arrivals due in [start, end)."""
    inside = [one for one in records if start <= one.due < end]
    if len(inside) < LEAST_REQUESTS or end <= start:
        return Saturation(False, 0.0, 0.0)
    grid = np.arange(start, end, _GRID_S)
    under_way = backlog(records, grid)
    slope = float(np.polyfit(grid, under_way, 1)[0])
    unserved = max(0.0, slope * (end - start) / len(inside))
    third = max(1, len(grid) // 3)
    first, last = float(under_way[:third].mean()), float(under_way[-third:].mean())
    grows = last > _GROWTH * first and last > first + 2
    # The warm-up's requests too: far above saturation none of those inside gets its first token.
    z = _trend([_first_token(one) for one in records if one.due < end])
    over = unserved >= UNSERVED_SHARE and grows and z > _Z_ONE_PERCENT
    return Saturation(over, unserved, z)


def _first_token(record: Record) -> float:
    """Seconds to the first token; infinite where the run ended before it."""
    if record.ttft is not None:
        return record.ttft
    return math.inf if record.status == "unfinished" else record.e2e


def backlog(records: Sequence[Record], at: np.ndarray) -> np.ndarray:
    """Requests that are due and not yet ended at each of the times."""
    starts = np.sort([one.due for one in records])
    ends = np.sort([max(one.end, one.due) for one in records])
    return np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")


def _trend(values: Sequence[float]) -> float:
    """z of the Mann-Kendall test; positive where later values are larger."""
    step = math.ceil(len(values) / _MOST_POINTS)
    sample = np.asarray(values[::step])
    count = len(sample)
    if count < 3:
        return 0.0
    later, earlier = sample[None, :], sample[:, None]
    rises = (later > earlier).astype(int) - (later < earlier)  # two infinite ones are equal
    score = float(rises[np.triu_indices(count, 1)].sum())
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (score - math.copysign(1, score)) / deviation if score else 0.0
