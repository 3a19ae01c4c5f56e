"""Governors, range, reconciling with the read-back, objectives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from jetspec_controller.core import (
    Action,
    BudgetReadback,
    Clamp,
    Governor,
    LatencyPercentiles,
    PolicyConfig,
    Reason,
)

from tests.support.world import World, affine, log_tau

UNIFORM = PolicyConfig(publish_table=False)


def world(**changes) -> World:
    return World(config=UNIFORM.model_copy(update=changes))


def test_range_is_enforced_at_once():
    narrow = world(min_budget=16, max_budget=32)
    decision = narrow.step()
    assert (decision.reason, narrow.budget) == (Reason.OUT_OF_RANGE, 32)


def test_a_budget_between_tiers_comes_down_to_one():
    between = World(config=UNIFORM, budget=48)
    decision = between.step()
    assert (decision.reason, between.budget) == (Reason.OUT_OF_RANGE, 32)


def test_range_limits_are_named():
    low = world(max_budget=32)
    low.steps(5)
    assert Clamp.MAX_BUDGET in low.step().explanation.clamps
    high = world(min_budget=64)
    high.steps(5)
    assert Clamp.MIN_BUDGET in high.step(batch=64.0).explanation.clamps


def test_advisory_decides_and_sends_nothing():
    advised = world(governor=Governor.ADVISORY)
    decisions = [advised.step(batch=32.0) for _ in range(10)]
    assert advised.budget == 256
    assert decisions[-1].action is Action.SET_BUDGET
    assert not any(d.applies for d in decisions)


@pytest.mark.parametrize("publish", [False, True])
def test_a_hand_set_table_is_followed(publish):
    by_hand = world(governor=Governor.TABLE, table={1: 128, 4: 64, 16: 20}, publish_table=publish)
    for batch, budget in [(1, 128), (4, 64), (20, 16), (2, 128)]:
        by_hand.steps(4, float(batch))
        assert by_hand.in_force == budget
    if publish:
        assert by_hand.table == ((1, 128), (4, 64), (16, 16))


def test_a_hand_set_table_cuts_at_once_and_rises_after_confirmation():
    by_hand = world(governor=Governor.TABLE, table={1: 128, 8: 16})
    by_hand.steps(4, 1.0)
    assert by_hand.step(batch=8.0).reason is Reason.CONFIGURED_TABLE
    assert by_hand.budget == 16
    assert by_hand.step(batch=1.0).reason is Reason.CONFIRMING


def test_model_after_off_starts_from_the_read_back():
    switched = world(governor=Governor.OFF)
    switched.steps(3)
    switched.budget = 32
    switched.config = UNIFORM
    assert switched.step().reason is not Reason.DRIFT_REAPPLY


def test_drift_is_put_right():
    drifted = world()
    drifted.steps(10)
    wanted, drifted.budget = drifted.budget, 256
    decision = drifted.step()
    assert (decision.reason, decision.budget) == (Reason.DRIFT_REAPPLY, wanted)
    assert drifted.budget == wanted


def test_ranks_that_disagree_are_put_right():
    split = world()
    split.steps(10)
    read = replace(split.observe().budget, consistent=False)
    assert split.step(budget=read).reason is Reason.DRIFT_REAPPLY


def test_a_server_that_does_not_obey_is_asked_ever_less_often_and_then_believed():
    stubborn = world()
    stubborn.steps(10)
    stubborn.obeys, stubborn.budget = False, 256
    decisions = stubborn.steps(12)
    sent = [d.tick for d in decisions if d.action is not Action.HOLD]
    assert sent[:2] == [11, 13]
    assert sum(d.reason is Reason.NOT_APPLIED for d in decisions) >= 4
    gaps = [b - a for a, b in pairwise(sent)]
    assert gaps[1] > gaps[0]


def test_a_table_of_the_server_below_its_first_entry_is_the_uniform_budget():
    read = BudgetReadback(64, (1, 16, 32, 64), 64, ((8, 16),))
    adopted = world(publish_table=True)
    decision = adopted.decide(replace(adopted.observe(), budget=read, running_requests=None))
    assert (decision.action, decision.table) == (Action.HOLD, ((1, 64), (8, 16)))


def test_kv_pressure_forbids_a_rise_and_allows_a_cut():
    full = world()
    full.steps(10, 32.0)
    low = full.budget
    for _ in range(6):
        decision = full.step(batch=1.0, token_usage=0.97)
    assert (decision.reason, full.budget) == (Reason.KV_PRESSURE, low)
    full.steps(5, 1.0)
    assert full.budget > low
    assert full.step(batch=32.0, token_usage=0.97).reason is Reason.FASTER_DOWN


def test_tpot_objective_of_the_slow_requests_asks_for_a_smaller_budget():
    """Requests that accept little gain little from a tree and pay its rounds."""
    free = World(config=UNIFORM, cost=affine(0.01, 1e-4), tau=log_tau(1.2))
    free.steps(20, 4.0)
    slow_tpot = 0.9 * free.cost(4.0, free.budget)
    bound = 0.8 * slow_tpot
    bound_config = UNIFORM.model_copy(update={"tpot_objective_s": bound})
    bounded = World(config=bound_config, cost=free.cost, tau=free.tau, budget=free.budget)
    latency = LatencyPercentiles(0.99, tpot_s=slow_tpot)
    first = bounded.step(batch=4.0, latency=latency)
    assert bounded.budget < free.budget
    assert first.reason is Reason.OBJECTIVE
    assert Clamp.OBJECTIVE in first.explanation.clamps


def test_ttft_objective_asks_for_shorter_rounds():
    free = World(config=UNIFORM, cost=affine(0.02, 1e-3), tau=lambda b: b**0.6)
    free.steps(20)
    config = UNIFORM.model_copy(update={"ttft_objective_s": 0.2})
    bounded = World(config=config, cost=free.cost, tau=free.tau, budget=free.budget)
    latency = LatencyPercentiles(0.99, ttft_s=0.2 + 0.01)
    for _ in range(3):
        bounded.step(latency=latency)
    assert bounded.cost(1.0, bounded.budget) <= free.cost(1.0, free.budget) - 0.01


def test_an_objective_that_nothing_meets_takes_the_nearest():
    config = UNIFORM.model_copy(update={"tpot_objective_s": 1e-6})
    bounded = World(config=config)
    decision = bounded.step(latency=LatencyPercentiles(0.99, tpot_s=0.01))
    assert sum(c.feasible for c in decision.explanation.candidates) == 1


def test_plain_decoding_is_left_by_a_probe():
    """Budget 1 shows nothing of τ: one step up measures it."""
    plain = World(config=UNIFORM, budget=1)
    decisions = plain.steps(20)
    assert decisions[0].reason is Reason.PROBE
    assert plain.regret() <= 0.05


def test_without_gauges_one_step_measures_the_cost():
    blind = World(config=UNIFORM, with_gauges=False)
    first = blind.step()
    assert (first.reason, blind.budget) == (Reason.PROBE, 128)
    blind.steps(20)
    assert blind.regret() <= 0.05


def test_unmeasured_budgets_are_tried_one_tier_at_a_time():
    """From 16 up, each tier is measured before the next."""
    low = World(config=UNIFORM, budget=16, cost=affine(0.02, 1e-5))
    seen = [low.step() for _ in range(40)]
    rises = [d.budget for d in seen if d.reason is Reason.PROBE]
    assert rises == [32, 64, 128, 256]
    assert low.budget == low.best() == 256


def test_a_probe_that_loses_goes_back_and_waits_longer():
    """Beyond 32 nodes nothing more is accepted, which no rounds at 32 can show."""
    capped = World(
        config=UNIFORM,
        budget=32,
        tau=lambda b: 1 + float(min(b, 32)) ** 0.5,
        cost=affine(0.02, 2e-5),
    )
    decisions = capped.steps(150)
    back = [d.tick for d in decisions if d.reason is Reason.PROBE_BACK]
    assert back
    assert capped.budget == 32
    assert len(back) <= 4


def test_explanation_names_inputs_candidates_and_the_next_change():
    explained = world()
    explained.steps(10, 32.0)
    decision = explained.step(batch=1.0)
    explanation = decision.explanation
    assert decision.reason is Reason.CONFIRMING
    assert explanation.batch_now == 1.0
    assert [c.budget for c in explanation.candidates] == list(explained.tiers)
    assert explanation.best_budget > decision.budget
    assert 0 < explanation.gain < 1
    assert explanation.next_change_at > decision.at
    assert 0 < explanation.confidence < 1
    assert explanation.accept is not None
    assert explanation.cost is not None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"min_budget": 64, "max_budget": 16}, "min_budget is 64"),
        ({"governor": "pinned"}, "pinned_budget"),
        ({"governor": "table"}, "table is empty"),
        ({"governor": "table", "table": {4: 0}}, "table entry 4: 0"),
        ({"governor": "table", "table": {0: 64, 8: 16}}, "table entry 0: 64"),
        ({"tolerance": 1}, "tolerance"),
        ({"step_up": 0}, "step_up"),
    ],
)
def test_config_mistakes_name_field_and_value(changes, field):
    with pytest.raises(ValueError, match=field):
        PolicyConfig(**changes)
