"""Seconds per round: the gauges' curve, a cost per request, and what was measured on top."""

from __future__ import annotations

import numpy as np
import pytest
from jetspec_controller.core import BudgetCounters, CostSource, PolicyConfig, cost

from tests.support.world import affine, gauges

CONFIG = PolicyConfig()


def rounds(budget: int, batch: float, seconds: float, count: float = 200.0) -> BudgetCounters:
    return BudgetCounters(budget, count, count * batch, 0.0, count * seconds, ())


def remember(truth, places, now=0.0):
    memory = ()
    for batch, budget in places:
        memory = cost.remember(CONFIG, memory, [rounds(budget, batch, truth(batch, budget))], now)
    return memory


def at(model, batch, budget) -> float:
    return float(model.seconds(np.array([float(batch)]), np.array([float(budget)]))[0])


def test_without_rounds_it_is_the_curve():
    truth = affine()
    model = cost.model(CONFIG, gauges(truth), (), 0.0)
    for batch, budget in [(1, 16), (4, 64), (32, 32)]:
        assert at(model, batch, budget) == pytest.approx(truth(batch, budget), rel=0.01)


def test_it_passes_through_what_was_measured():
    """Even where it has nothing to do with rows."""
    places = {(1, 128): 0.018, (2, 64): 0.029, (8, 16): 0.044, (8, 64): 0.069, (16, 16): 0.067}
    memory = remember(lambda n, b: places[n, b], places)
    model = cost.model(CONFIG, gauges(affine()), memory, 0.0)
    for (batch, budget), seconds in places.items():
        assert at(model, batch, budget) == pytest.approx(seconds, rel=0.02)


def test_a_cost_per_request_is_found_and_carried_to_other_budgets():
    truth = affine(request_s=2e-3)
    calibration = gauges(truth)
    memory = remember(truth, [(1, 128), (16, 16)])
    model = cost.model(CONFIG, calibration, memory, 0.0)
    for budget in (32, 64, 128):
        assert at(model, 16, budget) == pytest.approx(truth(16, budget), rel=0.1)
    bare = cost.model(CONFIG, calibration, (), 0.0)
    assert at(bare, 16, 32) < 0.7 * truth(16, 32)


def test_a_cost_per_round_is_found_and_carried_to_other_budgets():
    """The gauges were calibrated without the scheduler. Small budgets alone have run."""
    calibrated, scheduler = affine(), 12e-3

    def truth(batch, budget):
        return calibrated(batch, budget) + scheduler

    memory = remember(truth, [(1, 16), (4, 16), (8, 1)])
    model = cost.model(CONFIG, gauges(calibrated), memory, 0.0)
    assert model.round_s == pytest.approx(scheduler, rel=0.2)
    for batch, budget in [(1, 128), (4, 64), (8, 16), (16, 16)]:
        assert at(model, batch, budget) == pytest.approx(truth(batch, budget), rel=0.06)


@pytest.mark.parametrize("batch", [1.0, 8.0])
def test_rounds_of_one_batch_leave_open_what_the_rest_depends_on(batch):
    def truth(n, budget):
        return affine()(n, budget) + 0.02

    model = cost.model(CONFIG, gauges(affine()), remember(truth, [(batch, 16)]), 0.0)
    assert model.round_s == pytest.approx(model.request_s * batch, rel=0.01)
    assert model.round_s + model.request_s * batch == pytest.approx(0.02, rel=0.05)


def test_faster_rounds_than_the_gauges_give_no_negative_costs():
    memory = remember(lambda n, b: 0.5 * affine()(n, b), [(1, 16), (8, 16), (4, 64)])
    model = cost.model(CONFIG, gauges(affine()), memory, 0.0)
    assert (model.round_s, model.request_s) == (0.0, 0.0)
    assert at(model, 8, 64) == pytest.approx(0.5 * affine()(8, 64), rel=0.1)


def test_a_slower_machine_is_slower_everywhere():
    memory = remember(lambda n, b: 2 * affine()(n, b), [(1, 64), (8, 16)])
    model = cost.model(CONFIG, gauges(affine()), memory, 0.0)
    assert at(model, 2, 32) == pytest.approx(2 * affine()(2, 32), rel=0.15)


def test_doubt_is_small_where_measured_and_grows_away_from_it():
    memory = remember(affine(), [(8, 16), (8, 32)])
    model = cost.model(CONFIG, gauges(affine()), memory, 0.0)
    budgets = np.array([1.0, 16.0, 32.0, 64.0, 256.0])
    doubt = model.doubt(np.full(5, 8.0), budgets, 1)
    assert doubt[1] == 0.0
    assert doubt[2] < 0.03 < doubt[3] < doubt[4]


def test_a_measurement_ages():
    memory = remember(affine(), [(8, 16), (8, 64)])
    new = cost.model(CONFIG, gauges(affine()), memory, 0.0)
    old = cost.model(CONFIG, gauges(affine()), memory, 20 * CONFIG.cost_half_life_s)
    where = np.full(2, 8.0), np.array([16.0, 64.0])
    assert old.doubt(*where, 0)[1] > 2 * new.doubt(*where, 0)[1]


def test_without_gauges_the_counters_give_the_curve():
    memory = remember(affine(), [(8, 16), (8, 64)])
    model = cost.model(CONFIG, None, memory, 0.0)
    assert model.curve.source is CostSource.COUNTERS
    assert at(model, 8, 32) == pytest.approx(affine()(8, 32), rel=0.1)


def test_one_point_is_no_curve():
    assert cost.model(CONFIG, None, remember(affine(), [(8, 16)]), 0.0) is None
    assert cost.model(CONFIG, None, (), 0.0) is None
    plain = remember(affine(), [(8, 1), (16, 1)])
    assert cost.model(CONFIG, None, plain, 0.0) is None


def test_beyond_the_curve_rows_cost_at_least_half_in_proportion():
    flat = gauges(lambda n, b: 0.01, most_rows=64)
    model = cost.model(CONFIG, flat, (), 0.0)
    assert at(model, 64, 64) >= 0.01 * 64**0.5 - 1e-9


def test_means_follow_the_latest_rounds():
    memory = cost.remember(CONFIG, (), [rounds(16, 8, 0.02)], 0.0)
    memory = cost.remember(CONFIG, memory, [rounds(16, 8, 0.04)], 10 * CONFIG.cost_half_life_s)
    assert len(memory) == 1
    assert memory[0].seconds == pytest.approx(0.04, rel=0.01)


def test_rounds_that_cannot_be_are_left_out():
    nothing = [rounds(16, 8, 0.0), rounds(16, 8, 0.1, count=0.0), rounds(16, 0.5, 0.1)]
    assert cost.remember(CONFIG, (), nothing, 0.0) == ()


def test_memory_is_bounded():
    memory = ()
    for step in range(400):
        batch = 1.0 + step
        memory = cost.remember(
            CONFIG, memory, [rounds(b, batch, 0.1) for b in range(1, 30)], float(step)
        )
    assert len(memory) == cost.MOST_CELLS
