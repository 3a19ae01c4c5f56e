"""True cost surfaces and τ curves that simulated servers run on. No I/O.

``TABLE_11`` is the serving table of the paper (arXiv 2606.18394 v3, Table 11, appendix E): tokens/s
of vLLM with Qwen3-8B on one H100 by batch and tree budget. The paper gives τ of the trees of 64 and
128 nodes (its Table 1, MATH-500); for 16 and 32 nodes it tabulates only chains, so τ of those trees
is our simulation of the same building rule. τ does not change tokens/s, only the split of the
surface into rounds: seconds per round = batch · τ(B) / tokens per second.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Surface(Protocol):
    """Seconds of one round of a batch at a budget, by the truth of the simulated device."""

    def round_s(self, batch: float, budget: float) -> float: ...


@dataclass(frozen=True, slots=True)
class TauCurve:
    """True τ on some budgets (1 first); linear in log2 B between, by the last slope beyond."""

    budgets: tuple[int, ...]
    taus: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.budgets[0] != 1 or self.taus[0] != 1.0 or len(self.budgets) != len(self.taus):
            raise ValueError(
                f"a τ curve starts at budget 1 with τ 1, got {self.budgets}, {self.taus}"
            )

    def __call__(self, budget: float) -> float:
        return float(self.many(np.array([budget], dtype=np.float64))[0])

    def many(self, budgets: Array) -> Array:
        """τ of each budget."""
        x, known = np.log2(budgets), np.log2(self.budgets)
        slope = (self.taus[-1] - self.taus[-2]) / (known[-1] - known[-2])
        taus: Array = np.interp(x, known, self.taus) + slope * np.maximum(x - known[-1], 0.0)
        return taus


@dataclass(frozen=True, slots=True)
class GridSurface:
    """Seconds on a grid, linear in the batch and in the budget between points; beyond the last
    batch or budget by the last slope.
    """

    batches: tuple[float, ...]
    budgets: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]  # [batch][budget]

    def round_s(self, batch: float, budget: float) -> float:
        i, u = _cell(self.batches, batch)
        j, v = _cell(self.budgets, budget)
        low = self.seconds[i][j] * (1 - v) + self.seconds[i][j + 1] * v
        high = self.seconds[i + 1][j] * (1 - v) + self.seconds[i + 1][j + 1] * v
        return low * (1 - u) + high * u


@dataclass(frozen=True, slots=True)
class RooflineSurface:
    """A round bound by reading weights until its rows fill the device, plus a cost per request
    (attention over its prefix, sampling) and the draft's own time when it drafts.
    """

    read_s: float
    row_s: float
    request_s: float
    draft_s: float

    def round_s(self, batch: float, budget: float) -> float:
        rows = batch * budget
        # A soft maximum: the knee of a real device is rounded.
        verify = math.sqrt(math.hypot(self.read_s**2, (rows * self.row_s) ** 2))
        return verify + self.request_s * batch + (self.draft_s if budget > 1 else 0.0)


def from_tokens_per_second(rates: Mapping[int, Mapping[int, float]], tau: TauCurve) -> GridSurface:
    """The surface behind a table {batch: {budget: tokens/s of the whole batch}}."""
    batches = sorted(rates)
    budgets = sorted(rates[batches[0]])
    seconds = tuple(tuple(n * tau(b) / rates[n][b] for b in budgets) for n in batches)
    return GridSurface(tuple(map(float, batches)), tuple(map(float, budgets)), seconds)


TABLE_11_TAU = TauCurve((1, 16, 32, 64, 128), (1.0, 3.71, 5.25, 7.42, 9.95))
TABLE_11_RATES: Mapping[int, Mapping[int, float]] = {
    1: {1: 127.8, 16: 224.0, 32: 312.0, 64: 447.3, 128: 553.3},
    2: {1: 163.3, 16: 266.2, 32: 360.3, 64: 516.0, 128: 621.6},
    4: {1: 203.8, 16: 433.6, 32: 534.2, 64: 664.2, 128: 742.9},
    8: {1: 246.2, 16: 679.3, 32: 839.3, 64: 859.3, 128: 803.5},
    16: {1: 287.3, 16: 891.8, 32: 1094.6, 64: 995.8, 128: 803.1},
}
TABLE_11 = from_tokens_per_second(TABLE_11_RATES, TABLE_11_TAU)


@dataclass(frozen=True, slots=True)
class Device:
    """A server's truth: its surface, its τ curve, and the tiers it was started with."""

    name: str
    surface: Surface
    tau: TauCurve
    tiers: tuple[int, ...]

    def best(self, batch: float) -> int:
        """The tier with the fewest true seconds per token at this batch."""
        return min(self.tiers, key=lambda b: (self.surface.round_s(batch, b) / self.tau(b), b))


DEVICES: Mapping[str, Device] = {
    d.name: d
    for d in (
        Device("table11", TABLE_11, TABLE_11_TAU, (1, 16, 32, 64, 128)),
        Device(
            "roofline",
            RooflineSurface(read_s=0.009, row_s=4.0e-5, request_s=6.0e-5, draft_s=0.0025),
            TauCurve((1, 16, 32, 64, 128, 256), (1.0, 5.3, 6.1, 6.9, 7.7, 8.4)),
            (1, 16, 32, 64, 128, 256),
        ),
    )
}
"""``roofline`` is a synthetic device: a knee near 225 rows, best-first trees."""


def _cell(points: Sequence[float], x: float) -> tuple[int, float]:
    i = min(max(bisect_right(points, x) - 1, 0), len(points) - 2)
    return i, max((x - points[i]) / (points[i + 1] - points[i]), 0.0)
