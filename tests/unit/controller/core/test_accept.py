"""τ from counters: exact where rounds saw it, continued where not, bounded in memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from jetspec_controller.core import RANK_EDGES, BudgetCounters, PolicyConfig, accept

CONFIG = PolicyConfig()


def tau(budget: float, level: float = 1.0) -> float:
    return 1.0 + level * 0.8 * math.log2(budget)


def rounds(budget: int, requests: float = 1000.0, level: float = 1.0) -> BudgetCounters:
    accepted = tuple(requests * (tau(min(e, budget), level) - 1) for e in RANK_EDGES)
    return BudgetCounters(budget, requests, requests, requests + accepted[-1], 10.0, accepted)


def model(memory, now=0.0):
    fitted = accept.model(CONFIG, memory, RANK_EDGES, now)
    assert fitted is not None
    return fitted


def test_one_budget_gives_every_smaller_one():
    fitted = model(accept.remember(CONFIG, (), [rounds(64)], 0.0))
    budgets = np.array([1.0, 2.0, 16.0, 32.0, 64.0])
    assert fitted.at(budgets) == pytest.approx([tau(b) for b in budgets])
    assert fitted.measured == 64


def test_beyond_the_budget_it_goes_on_by_octaves():
    """τ that grows by the same with every octave is continued exactly."""
    fitted = model(accept.remember(CONFIG, (), [rounds(32)], 0.0))
    assert fitted.at(np.array([64.0, 256.0])) == pytest.approx([tau(64), tau(256)])
    points = {p.budget: p for p in fitted.points([16, 32, 64])}
    assert [points[b].extrapolated for b in (16, 32, 64)] == [False, False, True]
    assert fitted.confidence(64) == 0.0 < fitted.confidence(32) < 1.0


def test_a_flattening_curve_is_continued_flatter():
    flat = BudgetCounters(
        32, 1e3, 1e3, 4e3, 9.0, tuple(1e3 * math.log2(min(e, 32)) ** 0.5 for e in RANK_EDGES)
    )
    fitted = model(accept.remember(CONFIG, (), [flat], 0.0))
    at = fitted.at(np.array([32.0, 64.0, 128.0]))
    assert at[1] - at[0] < at[0] - fitted.at(np.array([16.0]))[0]
    assert at[2] - at[1] <= at[1] - at[0]


def test_level_is_fresh_and_shape_is_remembered():
    """Harder requests since the budget fell: every τ − 1 falls by the same share."""
    memory = accept.remember(CONFIG, (), [rounds(64)], 0.0)
    memory = accept.remember(CONFIG, memory, [rounds(16, 1e5, 0.5)], 600.0)
    fitted = model(memory, 600.0)
    assert fitted.at(np.array([16.0, 64.0])) == pytest.approx(
        [tau(16, 0.5), tau(64, 0.5)], rel=0.02
    )
    assert fitted.measured == 64


def test_old_evidence_is_marked():
    memory = accept.remember(CONFIG, (), [rounds(64)], 0.0)
    now = CONFIG.evidence_max_age_s + 1
    memory = accept.remember(CONFIG, memory, [rounds(16)], now)
    assert model(memory, now).measured == 16


def test_old_counts_fade():
    memory = accept.remember(CONFIG, (), [rounds(64, 1000, 1.0)], 0.0)
    memory = accept.remember(
        CONFIG, memory, [rounds(64, 1000, 0.5)], 10 * CONFIG.accept_half_life_s
    )
    assert model(memory).at(np.array([64.0]))[0] == pytest.approx(tau(64, 0.5), rel=0.01)


def test_too_few_rounds_are_no_curve():
    few = accept.remember(CONFIG, (), [rounds(64, CONFIG.min_request_rounds - 1)], 0.0)
    assert accept.model(CONFIG, few, RANK_EDGES, 0.0) is None
    assert accept.model(CONFIG, (), RANK_EDGES, 0.0) is None
    plain = accept.remember(CONFIG, (), [rounds(1, 1e6)], 0.0)
    assert accept.model(CONFIG, plain, RANK_EDGES, 0.0) is None


def test_totals_since_the_start_count_as_a_limited_number_of_rounds():
    (seed,) = accept.remember(CONFIG, (), [rounds(64, 1e9)], 0.0, limit=1000.0)
    assert seed.request_rounds == 1000.0
    assert model((seed,)).at(np.array([64.0]))[0] == pytest.approx(tau(64))


def test_nothing_accepted_is_tau_one():
    none = BudgetCounters(64, 1e3, 1e3, 1e3, 9.0, (0.0,) * len(RANK_EDGES))
    fitted = model(accept.remember(CONFIG, (), [none], 0.0))
    assert fitted.at(np.array([1.0, 64.0, 256.0])) == pytest.approx([1.0, 1.0, 1.0])


def test_noise_does_not_bend_the_curve():
    rng = np.random.default_rng(0)
    exact = np.diff([0.0, *rounds(256, 400).accepted])
    noisy = BudgetCounters(256, 400, 400, 2000, 9.0, tuple(np.cumsum(rng.poisson(exact)).tolist()))
    fitted = model(accept.remember(CONFIG, (), [noisy], 0.0))
    slopes = np.diff(fitted.tau) / np.diff(fitted.edges)
    assert np.all(np.diff(slopes) <= 1e-9)
    assert fitted.at(np.array([64.0]))[0] == pytest.approx(tau(64), rel=0.1)


def test_memory_is_bounded():
    memory = ()
    for budget in range(2, 200):
        memory = accept.remember(CONFIG, memory, [rounds(budget)], float(budget))
    assert len(memory) == accept.MOST_BUDGETS
    assert memory[-1].budget == 199
