"""Predicted seconds per token of every allowed budget at any batch: cost(n, B) / τ(B). No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jetspec_controller.core.accept import AcceptModel
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.cost import CostModel
from jetspec_controller.core.load import ServerLoad, expected_batch, peak_batch
from jetspec_controller.core.smoothing import Array
from jetspec_controller.core.types import Candidate, LatencyPercentiles

TAU_DOUBT = 0.1
"""Standard deviation of log τ, one octave beyond the measured budgets."""


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Both curves on the allowed budgets (ascending)."""

    budgets: Array  # [K]
    tau: Array  # [K]
    measured: float  # budgets up to this one have a fresh τ
    cost: CostModel

    def round_s(self, batch: Array) -> Array:
        """Seconds per round, shape [..., K], for batches of shape [..., K] or [..., 1]."""
        return self.cost.seconds(batch, self.budgets)

    def token_s(self, batch: Array) -> Array:
        """Seconds per token of one request (TPOT without its spread), shape [..., K]."""
        return self.round_s(batch) / self.tau


def build(allowed: Sequence[int], accept: AcceptModel, cost: CostModel) -> SpeedModel:
    """Evaluates τ once on the allowed budgets."""
    budgets = np.array(allowed, dtype=np.float64)
    return SpeedModel(budgets, accept.at(budgets), accept.measured, cost)


def candidates(
    config: PolicyConfig,
    speed: SpeedModel,
    load: ServerLoad,
    latency: LatencyPercentiles | None,
    current: int,
) -> tuple[Candidate, ...]:
    """Every allowed budget, at the batch to expect with this budget. A table entry is for the batch
    that runs, so with a table every budget is evaluated at the running batch. One number must also
    meet the objectives at the largest batch within ``look_ahead_s``.
    """
    count = len(speed.budgets)
    if config.publish_table:
        batch = largest = np.full(count, max(load.batch, 1.0))
    else:
        batch = expected_batch(load, config.interval_s, speed.token_s, count)
        ahead = peak_batch(load, config.look_ahead_s, speed.token_s, count)
        largest = np.maximum(batch, ahead)
    round_s = speed.round_s(batch)
    token_s = round_s / speed.tau
    slowest = round_s if largest is batch else speed.round_s(largest)
    feasible = within_objectives(config, speed, slowest, latency, load.batch, current)
    here = int(np.searchsorted(speed.budgets, current))
    doubt = np.hypot(
        speed.cost.doubt(batch, speed.budgets, here),
        TAU_DOUBT * np.log2(np.maximum(speed.budgets / max(speed.measured, current), 1.0)),
    )
    columns = (batch, speed.tau, round_s, token_s, doubt)
    return tuple(
        Candidate(budget, n, tau, r, s, budget > speed.measured, d, f)
        for budget, n, tau, r, s, d, f in zip(
            speed.budgets.astype(int).tolist(),
            *(column.tolist() for column in columns),
            feasible.tolist(),
            strict=True,
        )
    )


def within_objectives(
    config: PolicyConfig,
    speed: SpeedModel,
    round_s: Array,
    latency: LatencyPercentiles | None,
    batch: float,
    current: int,
) -> NDArray[np.bool_]:
    """The budgets that meet the configured percentiles, shape of ``round_s``. If none does, the
    nearest one. Without an objective or a measurement, all of them.

    The percentiles were measured at ``batch`` and the ``current`` budget. The slow requests behind
    a TPOT percentile accept fewer tokens. Their TPOT gives the share of extra tokens that they get,
    and this share is used for other batches and budgets, too. If a round is longer, the first token
    is late by the same time.
    """
    excess = np.zeros_like(round_s)
    bounds = config.tpot_objective_s, config.ttft_objective_s
    if latency is not None and bounds != (None, None):
        here = int(np.argmin(np.abs(speed.budgets - current)))
        measured_s = float(speed.round_s(np.array([max(batch, 1.0)]))[here])
        if config.tpot_objective_s is not None and latency.tpot_s:
            extra = measured_s / latency.tpot_s - 1.0
            share = np.clip(extra / max(speed.tau[here] - 1.0, 1e-9), 0.0, 1.0)
            tpot = round_s / (1.0 + share * (speed.tau - 1.0))
            excess = np.maximum(excess, tpot / config.tpot_objective_s - 1.0)
        if config.ttft_objective_s is not None and latency.ttft_s:
            ttft = latency.ttft_s + round_s - measured_s
            excess = np.maximum(excess, ttft / config.ttft_objective_s - 1.0)
    usable: NDArray[np.bool_] = excess <= np.maximum(excess.min(-1, keepdims=True), 0.0)
    return usable
