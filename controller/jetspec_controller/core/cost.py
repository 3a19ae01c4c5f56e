"""Seconds per round of one server for any (batch, budget). No I/O.

The gauges (or a file) give seconds as a function of rows = batch × budget. Real rounds also cost
by request (sampling, attention over each prefix) and by what else runs on the device, so measured
rounds correct the curve around the (batch, budget) where they were run: log seconds =
log curve(rows) + a kernel average of the measured log ratios, drawn to 0 far from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .config import PolicyConfig
from .enums import CostSource
from .smoothing import Array, loglog_convex
from .state import CostMemory
from .types import BudgetCounters, CostCurve, CostPoint

BATCH_BINS_PER_OCTAVE = 2
FULL_WEIGHT_ROUNDS = 100.0  # a cell with this many rounds counts fully
PRIOR_WEIGHT = 0.02  # of the uncorrected curve
FAR_WEIGHT = 0.003  # of a cell however far away
BATCH_WIDTH = 1.0  # kernel width, octaves of batch
BUDGET_WIDTH = 1.5  # kernel width, octaves of budget
PLAIN_DISTANCE = -2.0  # budget 1 drafts nothing: set apart from budget 2 by this many octaves


def remember(
    config: PolicyConfig,
    memory: Sequence[CostMemory],
    fresh: Sequence[BudgetCounters],
    now: float,
    limit: float = math.inf,
) -> tuple[CostMemory, ...]:
    """Adds the rounds of one interval to the cell of their budget and mean batch."""
    kept = {(m.budget, _bin(m.batch)): m for m in memory}
    for counts in fresh:
        if counts.rounds <= 0 or counts.seconds <= 0 or counts.request_rounds < counts.rounds:
            continue
        rounds = min(counts.rounds, limit)
        batch = counts.request_rounds / counts.rounds
        seconds = counts.seconds / counts.rounds
        key = (counts.budget, _bin(batch))
        old = kept.get(key)
        if old is not None:
            mass = old.rounds * 0.5 ** (max(now - old.updated_at, 0.0) / config.cost_half_life_s)
            share = rounds / (rounds + mass)
            batch = old.batch + share * (batch - old.batch)
            seconds = old.seconds + share * (seconds - old.seconds)
            rounds += mass
        kept[key] = CostMemory(counts.budget, batch, seconds, rounds, now)
    return tuple(kept[key] for key in sorted(kept))


@dataclass(frozen=True, slots=True)
class CostModel:
    """A smoothed curve over rows and the measured cells that correct it."""

    log_rows: Array  # [P]
    log_seconds: Array  # [P]
    cell_x: Array  # [C] octaves of batch, in kernel widths
    cell_y: Array  # [C] octaves of budget, in kernel widths
    cell_ratio: Array  # [C] log (measured / curve)
    cell_weight: Array  # [C]
    curve: CostCurve

    def seconds(self, batch: Array, budget: Array) -> Array:
        """Seconds per round; ``batch`` and ``budget`` broadcast against each other."""
        base = self._base(np.log(batch * budget))
        if not len(self.cell_ratio):
            return np.exp(base)
        dx = (np.log2(batch) / BATCH_WIDTH)[..., None] - self.cell_x
        dy = (_budget_octave(budget) / BUDGET_WIDTH)[..., None] - self.cell_y
        weight = self.cell_weight * (np.exp(-0.5 * (dx * dx + dy * dy)) + FAR_WEIGHT)
        ratio = (weight @ self.cell_ratio) / (weight.sum(-1) + PRIOR_WEIGHT)
        return np.exp(base + ratio)

    def _base(self, log_rows: Array) -> Array:
        inside = np.interp(log_rows, self.log_rows, self.log_seconds)
        over = np.maximum(log_rows - self.log_rows[-1], 0.0)
        return inside + over * _last_slope(self.log_rows, self.log_seconds)


def model(
    config: PolicyConfig, curve: CostCurve | None, memory: Sequence[CostMemory], now: float
) -> CostModel | None:
    """The cost model from the gauges' or file's curve, else from the measured cells alone; None
    when there are fewer than two points to draw a curve through.
    """
    if curve is None or len(curve.points) < 2:
        curve = _from_cells(memory, now)
        if len(curve.points) < 2:
            return None
    rows = np.array([p.rows for p in curve.points], dtype=np.float64)
    seconds = np.array([p.seconds for p in curve.points], dtype=np.float64)
    samples = np.array([p.samples for p in curve.points], dtype=np.float64)
    log_rows, log_seconds = loglog_convex(rows, seconds, np.maximum(samples, 1.0))
    bare = CostModel(log_rows, log_seconds, *(np.zeros(0),) * 4, curve)
    if not memory:
        return bare
    batch = np.array([m.batch for m in memory])
    budget = np.array([m.budget for m in memory], dtype=np.float64)
    measured = np.array([m.seconds for m in memory])
    rounds = np.array([m.rounds for m in memory])
    age = np.maximum(now - np.array([m.updated_at for m in memory]), 0.0)
    return CostModel(
        log_rows,
        log_seconds,
        np.log2(batch) / BATCH_WIDTH,
        _budget_octave(budget) / BUDGET_WIDTH,
        np.log(measured) - np.log(bare.seconds(batch, budget)),
        np.minimum(rounds / FULL_WEIGHT_ROUNDS, 1.0) * 0.5 ** (age / config.evidence_max_age_s),
        curve,
    )


def _from_cells(memory: Sequence[CostMemory], now: float) -> CostCurve:
    """Measured rounds of at least budget 2 by power-of-two rows."""
    sums: dict[int, tuple[float, float, float, float]] = {}
    for m in memory:
        if m.budget == 1:
            continue
        key = round(math.log2(m.batch * m.budget))
        rows, seconds, rounds, last = sums.get(key, (0.0, 0.0, 0.0, 0.0))
        sums[key] = (
            rows + m.rounds * m.batch * m.budget,
            seconds + m.rounds * m.seconds,
            rounds + m.rounds,
            max(last, m.updated_at),
        )
    points = tuple(
        CostPoint(rows / rounds, seconds / rounds, now - last, rounds)
        for _, (rows, seconds, rounds, last) in sorted(sums.items())
    )
    return CostCurve(points, CostSource.COUNTERS)


def _bin(batch: float) -> int:
    return round(BATCH_BINS_PER_OCTAVE * math.log2(batch))


def _budget_octave(budget: Array) -> Array:
    return np.where(budget > 1, np.log2(np.maximum(budget, 1.0)), PLAIN_DISTANCE)


def _last_slope(log_rows: Array, log_seconds: Array) -> float:
    """Growth beyond the last point: that of the last segment, at least half of proportional."""
    steepest = (log_seconds[-1] - log_seconds[-2]) / (log_rows[-1] - log_rows[-2])
    return max(float(steepest), 0.5)
