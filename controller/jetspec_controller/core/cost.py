"""Seconds per round of one server for any (batch, budget). No I/O.

The gauges (or a file) give seconds as a function of rows = batch × budget. Real rounds also have a
cost of their own (the scheduler) and a cost per request (sampling, attention over each prefix), and
other work on the device slows them down. So measured rounds correct the curve in two ways. First,
least squares give the costs that do not depend on the budget: base = curve(rows) + c + κ·batch.
Second, log (measured / base) is a Gaussian process over the
octaves of batch and budget, with a free offset and trend. It passes through the measured points,
follows the trend between them and nearby, and gives its uncertainty elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.enums import CostSource
from jetspec_controller.core.smoothing import Array, loglog_convex
from jetspec_controller.core.state import CostMemory
from jetspec_controller.core.types import BudgetCounters, CostCurve, CostPoint

BATCH_BINS_PER_OCTAVE = 2
MOST_CELLS = 96  # remembered, the most recent ones

# The process, in log seconds. Standard deviations of what the curve may be wrong by:
OFFSET = 0.5  # everywhere alike
TREND = 0.15  # an octave of batch, and an octave of budget
LOCAL = 0.3  # from place to place,
LENGTH = 1.5  # over this many octaves
PLAIN = 0.2  # at budget 1, which drafts nothing
RIDGE = 1e-3  # of the least squares, as a share of their trace
ROUND_NOISE = 0.1  # one round against the mean of its like
DRIFT = 0.04  # a measurement that is `cost_half_life_s` old


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
    newest = sorted(kept.values(), key=lambda m: -m.updated_at)[:MOST_CELLS]
    return tuple(sorted(newest, key=lambda m: (m.budget, m.batch)))


@dataclass(frozen=True, slots=True)
class CostModel:
    """A smoothed curve over rows and the measured cells that correct it."""

    log_rows: Array  # [P]
    log_seconds: Array  # [P]
    round_s: float  # c, seconds per round
    request_s: float  # κ, seconds per request per round
    cells: Array  # [C, 3] places, see _places
    weights: Array  # [C] of the process at each cell
    precision: Array  # [C, C] inverse covariance of the measured ratios
    curve: CostCurve

    def seconds(self, batch: Array, budget: Array) -> Array:
        """Seconds per round; ``batch`` and ``budget`` broadcast against each other."""
        base = self.curve_s(batch * budget) + self.round_s + self.request_s * batch
        if not len(self.weights):
            return base
        ratio = _covariance(_places(batch, budget), self.cells) @ self.weights
        seconds: Array = base * np.exp(ratio)
        return seconds

    def curve_s(self, rows: Array) -> Array:
        """Seconds by the uncorrected curve."""
        at = np.log(rows)
        inside = np.interp(at, self.log_rows, self.log_seconds)
        first, last = self._end_slopes()
        above = np.maximum(at - self.log_rows[-1], 0.0) * last
        below = np.minimum(at - self.log_rows[0], 0.0) * first
        seconds: Array = np.exp(inside + above + below)
        return seconds

    def doubt(self, batch: Array, budget: Array, reference: int) -> Array:
        """Standard deviation of log seconds at each place [K] against the place ``reference``."""
        places = _places(batch, budget)
        known = _covariance(places, self.cells)
        joint = _covariance(places, places) - known @ self.precision @ known.T
        own = np.diag(joint)
        variance = own + own[reference] - 2.0 * joint[reference]
        doubt: Array = np.sqrt(np.maximum(variance, 0.0))
        return doubt

    def _end_slopes(self) -> tuple[float, float]:
        """The slope outside the points. Before the first point it is half that of the first
        segment. After the last point it is that of the last segment, and at least half
        proportional.
        """
        slopes = np.diff(self.log_seconds) / np.diff(self.log_rows)
        return 0.5 * float(slopes[0]), max(float(slopes[-1]), 0.5)


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
    bare = CostModel(
        log_rows, log_seconds, 0.0, 0.0, np.zeros((0, 3)), np.zeros(0), np.zeros((0, 0)), curve
    )
    if not memory:
        return bare
    batch = np.array([m.batch for m in memory])
    budget = np.array([m.budget for m in memory], dtype=np.float64)
    seconds = np.array([m.seconds for m in memory])
    age = np.maximum(now - np.array([m.updated_at for m in memory]), 0.0)
    noise = ROUND_NOISE**2 / np.array([m.rounds for m in memory])
    noise += DRIFT**2 * age / config.cost_half_life_s
    expected = bare.curve_s(batch * budget)
    round_s, request_s = _beside_rows(batch, seconds, expected, noise)
    ratio = np.log(seconds / (expected + round_s + request_s * batch))
    cells = _places(batch, budget)
    precision: Array = np.asarray(
        np.linalg.inv(_covariance(cells, cells) + np.diag(noise + 1e-6)), dtype=np.float64
    )
    return CostModel(
        log_rows, log_seconds, round_s, request_s, cells, precision @ ratio, precision, curve
    )


def _beside_rows(
    batch: Array, seconds: Array, expected: Array, noise: Array
) -> tuple[float, float]:
    """c, κ ≥ 0 by weighted least squares of the relative errors. Cells of one batch cannot tell
    them apart; then each gets half.
    """
    weight = 1.0 / (noise + LOCAL**2)
    scale = np.array([1.0, 1.0 / np.average(batch, weights=weight)])
    x = np.stack((1.0 / seconds, batch / seconds), axis=-1) * scale
    y = 1.0 - expected / seconds
    products, target = (x * weight[:, None]).T @ x, (x * weight[:, None]).T @ y
    ridge = RIDGE * np.trace(products) * np.eye(2)
    both = np.linalg.solve(products + ridge, target)
    if both.min() < 0.0:
        # With one of them at 0, the other one alone.
        alone = np.maximum(target / np.diag(products), 0.0)
        only = int(np.argmax(target * alone))
        both = np.where(np.arange(2) == only, alone, 0.0)
    return float(both[0] * scale[0]), float(both[1] * scale[1])


def _places(batch: Array, budget: Array) -> Array:
    """Octaves of batch, octaves of budget, and whether it is plain decoding, shape [..., 3]."""
    columns = np.broadcast_arrays(np.log2(batch), np.log2(budget), budget == 1)
    return np.stack(columns, axis=-1, dtype=np.float64)


def _covariance(a: Array, b: Array) -> Array:
    """Prior covariance of the log ratio between places, shape [..., len(b)]."""
    a2, b2 = a[..., :2], b[:, :2]
    apart = (a2[..., None, :] - b2) / LENGTH
    local = np.exp(-0.5 * (apart * apart).sum(-1))
    plain = a[..., 2:] @ b[:, 2:].T
    covariance: Array = OFFSET**2 + TREND**2 * (a2 @ b2.T) + LOCAL**2 * local + PLAIN**2 * plain
    return covariance


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
