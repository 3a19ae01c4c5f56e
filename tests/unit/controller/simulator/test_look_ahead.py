"""Where looking ahead wins, and where it cannot: see `docs/decisions/0011`."""

from __future__ import annotations

import numpy as np
import pytest
from jetspec_controller.core import PolicyConfig, reserve
from jetspec_simulator.arrivals import Lengths, OpenTrace, poisson, steps
from jetspec_simulator.curves import DEVICES
from jetspec_simulator.policies import START, Governed, Oracle
from jetspec_simulator.run import RunResult, run
from jetspec_simulator.server import ServerSpec

DEVICE = DEVICES["table11"]
FULL = 16 * DEVICE.tau(32) / DEVICE.surface.round_s(16, 32)
"""Tokens a second at batch 16."""


def waves(seed: int) -> OpenTrace:
    """Quiet and busy by turns, long prompts."""
    lengths = Lengths(prompt_tokens=2000, output_tokens=300, spread=0.4)
    rates = [(60.0 * i, (0.1, 1.0)[i % 2] * FULL / 300) for i in range(4)]
    return steps("waves", rates, 240.0, lengths, np.random.default_rng(seed))


def governed(**changes: float) -> RunResult:
    policy = Governed("model", PolicyConfig(**changes), START)
    return run(policy, DEVICE, waves(1), ServerSpec(kv_tokens=40_000), seed=1)


def test_the_expected_batch_saves_retractions(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, now = governed(), governed(look_ahead_s=1e-6)
    assert ahead.retractions <= now.retractions
    monkeypatch.setattr(reserve, "ceiling", lambda *_: None)
    unlimited = governed()
    assert ahead.retractions < 0.2 * unlimited.retractions
    assert ahead.token_s < unlimited.token_s


class Shifted(Oracle):
    """The oracle, one tier off between two batches."""

    def __init__(self, low: int, high: int, by: int) -> None:
        super().__init__(DEVICE)
        self._range, self._by = range(low, high + 1), by

    def budget(self, batch: int) -> int:
        best = super().budget(batch)
        if batch not in self._range:
            return best
        place = DEVICE.tiers.index(best) + self._by
        return DEVICE.tiers[min(max(place, 0), len(DEVICE.tiers) - 1)]


@pytest.mark.parametrize(("low", "high"), [(1, 3), (4, 7), (8, 15)])
@pytest.mark.parametrize("by", [-1, 1])
def test_the_fastest_budget_of_each_batch_is_best_in_the_long_run(
    low: int, high: int, by: int
) -> None:
    rng = np.random.default_rng(1)
    trace = poisson("half load", 0.5 * FULL / 256, 200.0, Lengths(), rng)
    best = run(Oracle(DEVICE), DEVICE, trace, ServerSpec(), seed=1)
    other = run(Shifted(low, high, by), DEVICE, trace, ServerSpec(), seed=1)
    assert other.token_s >= 0.99 * best.token_s
