"""τ(B) of one server from its round counters, remembered and extended. No I/O.

The trees are nested. So a round at B shows, for every B′ ≤ B, how many of its accepted nodes had a
rank below B′. The curve is built edge by edge, like a chain ladder: the growth from one edge to the
next comes from rounds that saw both edges. So old rounds at a larger budget still give the shape of
the curve, while recent rounds give its level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.smoothing import Array, concave
from jetspec_controller.core.state import AcceptMemory
from jetspec_controller.core.types import AcceptPoint, BudgetCounters

SEED_ROUNDS = 20
"""A server's totals count, when first seen, as at most this many times ``min_request_rounds``."""

MOST_BUDGETS = 32
"""Budgets remembered, the most recent ones."""


def remember(
    config: PolicyConfig,
    memory: Sequence[AcceptMemory],
    fresh: Sequence[BudgetCounters],
    now: float,
    limit: float = math.inf,
) -> tuple[AcceptMemory, ...]:
    """Adds the counts of one interval, halving the older ones every ``accept_half_life_s``.

    ``limit`` is the maximum of request rounds that one budget may add (for totals since the
    server's start).
    """
    kept = {m.budget: m for m in memory}
    for counts in fresh:
        if counts.request_rounds <= 0:
            continue
        scale = min(1.0, limit / counts.request_rounds)
        old = kept.get(counts.budget)
        decay = _halved(now - old.updated_at, config.accept_half_life_s) if old else 0.0
        previous = old.accepted if old else (0.0,) * len(counts.accepted)
        kept[counts.budget] = AcceptMemory(
            counts.budget,
            (old.request_rounds * decay if old else 0.0) + counts.request_rounds * scale,
            tuple(p * decay + a * scale for p, a in zip(previous, counts.accepted, strict=True)),
            now,
        )
    newest = sorted(kept.values(), key=lambda m: -m.updated_at)[:MOST_BUDGETS]
    return tuple(sorted(newest, key=lambda m: m.budget))


@dataclass(frozen=True, slots=True)
class AcceptModel:
    """τ on the edges that any round has seen, and its continuation."""

    edges: Array  # [E] from 1
    tau: Array  # [E]
    request_rounds: Array  # [E] weight behind each value
    ages: Array  # [E] seconds
    measured: float  # largest budget whose τ is measured and fresh
    min_request_rounds: float

    def at(self, budgets: Array) -> Array:
        """τ of each budget. It is linear between edges. Beyond them, each octave adds the gain of
        the octave before it, times the ratio of the last two measured octaves (0.5 to 1)."""
        inside = np.interp(budgets, self.edges, self.tau)
        last = self.edges[-1]
        if last <= 1 or not np.any(budgets > last):
            return inside
        half, quarter = np.interp([last / 2, last / 4], self.edges, self.tau)
        octave = self.tau[-1] - half
        ratio = 0.8 if last < 4 or half <= quarter else float(octave / (half - quarter))
        ratio = min(max(ratio, 0.5), 1.0)
        octaves = np.log2(np.maximum(budgets / last, 1.0))
        total = octaves if ratio == 1.0 else ratio * (1 - ratio**octaves) / (1 - ratio)
        taus: Array = inside + octave * total
        return taus

    def confidence(self, budget: int) -> float:
        """Confidence from 0 to 1 by the request rounds behind τ(budget); 0 where τ is
        extrapolated."""
        if budget > self.measured:
            return 0.0
        rounds = float(np.interp(budget, self.edges, self.request_rounds))
        return rounds / (rounds + self.min_request_rounds)

    def points(self, budgets: Sequence[int]) -> tuple[AcceptPoint, ...]:
        """The curve as shown in an explanation."""
        at = np.array(budgets, dtype=np.float64)
        columns = (
            self.at(at).tolist(),
            np.interp(at, self.edges, self.request_rounds, right=0.0).tolist(),
            np.interp(at, self.edges, self.ages).tolist(),
        )
        return tuple(
            AcceptPoint(budget, tau, rounds, age, budget > self.measured)
            for budget, tau, rounds, age in zip(budgets, *columns, strict=True)
        )


def model(
    config: PolicyConfig, memory: Sequence[AcceptMemory], edges: Sequence[int], now: float
) -> AcceptModel | None:
    """The curve that the memory supports, or None when no round above budget 1 is remembered."""
    groups = [m for m in memory if m.budget >= edges[0] and len(m.accepted) == len(edges)]
    fresh = {m.budget: _halved(now - m.updated_at, config.accept_half_life_s) for m in groups}
    xs, excess, weights, ages = [1.0], [0.0], [0.0], [0.0]
    for i, edge in enumerate(edges):
        seen = [m for m in groups if m.budget >= edge]
        if sum(m.request_rounds for m in seen) < config.min_request_rounds:
            break
        here = sum(m.accepted[i] * fresh[m.budget] for m in seen)
        before = sum(m.accepted[i - 1] * fresh[m.budget] for m in seen) if i else 0.0
        weight = sum(m.request_rounds * fresh[m.budget] for m in seen)
        if before > 0:
            excess.append(excess[-1] * max(here / before, 1.0))
        else:
            excess.append(excess[-1] + here / weight)
        xs.append(float(edge))
        weights.append(weight)
        ages.append(min(now - m.updated_at for m in seen))
    if len(xs) == 1:
        return None
    x, w = np.array(xs), np.array(weights)
    w[0] = w[1]
    tau = concave(x, 1.0 + np.array(excess), w)
    return AcceptModel(
        x, tau, w, np.array(ages), _measured(config, groups, now), config.min_request_rounds
    )


def _measured(config: PolicyConfig, groups: Sequence[AcceptMemory], now: float) -> float:
    """The largest budget with enough request rounds, some of them recent."""
    rounds, age = 0.0, math.inf
    for group in reversed(groups):
        rounds += group.request_rounds
        age = min(age, now - group.updated_at)
        if rounds >= config.min_request_rounds and age <= config.evidence_max_age_s:
            return float(group.budget)
    return 1.0


def _halved(elapsed: float, half_life: float) -> float:
    """0.5 ** (elapsed / half_life), kept above zero so that old counts keep their ratios."""
    return max(math.pow(0.5, max(elapsed, 0.0) / half_life), 1e-9)
