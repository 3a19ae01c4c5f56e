"""Every unusable input has its own reason; no data is never zero load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jetspec_controller.core import (
    Action,
    Fault,
    Governor,
    PolicyConfig,
    Reason,
    Signal,
    SourceError,
)
from jetspec_controller.core.inputs import LOAD_REASONS

from tests.support.world import World

UNIFORM = PolicyConfig(publish_table=False)
HOLD_TICKS = int(UNIFORM.hold_s / UNIFORM.interval_s)
NAN = float("nan")


def settled(batch: float = 1.0, config: PolicyConfig = UNIFORM) -> World:
    """A server whose best budget is in force, well above the fallback."""
    world = World(config=config, batch=batch)
    world.steps(10)
    return world


@pytest.mark.parametrize("fault", LOAD_REASONS)
def test_each_fault_of_the_load_has_its_reason(fault):
    world = settled()
    held = world.budget
    error = SourceError(Signal.LOAD, fault, "as the source says")
    decision = world.step(running_requests=None, waiting_requests=None, errors=(error,))
    assert (decision.action, decision.reason, decision.budget) == (
        Action.HOLD,
        LOAD_REASONS[fault],
        held,
    )
    assert error in decision.explanation.faults


def test_every_fault_has_a_reason_of_its_own():
    assert set(LOAD_REASONS) == set(Fault)
    assert len(set(LOAD_REASONS.values())) == len(Fault)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"running_requests": None}, Reason.LOAD_MISSING),
        ({"waiting_requests": None}, Reason.LOAD_MISSING),
        ({"running_requests": NAN}, Reason.LOAD_NAN),
        ({"running_requests": -1.0}, Reason.LOAD_NAN),
        ({"waiting_requests": float("inf")}, Reason.LOAD_NAN),
        ({"ages": ((Signal.LOAD, 11.0),)}, Reason.LOAD_STALE),
    ],
)
def test_bad_values_are_noticed_without_the_source(changes, reason):
    decision = settled().step(**changes)
    assert (decision.action, decision.reason) == (Action.HOLD, reason)


def test_an_old_observation_is_stale():
    world = settled()
    decision = world.step(observed_at=world.now - 20.0)
    assert decision.reason is Reason.LOAD_STALE


@pytest.mark.parametrize("fault", [Fault.MISSING, Fault.TIMEOUT, Fault.EMPTY])
def test_blind_it_holds_then_falls_back_and_never_rises(fault):
    """An outage of the metrics must not look like an idle server."""
    world = settled()
    held = world.budget
    error = (SourceError(Signal.LOAD, fault),)
    blind = {"running_requests": None, "waiting_requests": None, "errors": error}
    first = [world.step(**blind) for _ in range(HOLD_TICKS - 1)]
    assert {d.budget for d in first} == {held}
    then = [world.step(**blind) for _ in range(5)]
    assert then[1].reason is Reason.FALLBACK
    assert [d.budget for d in then[1:]] == [16] * 4
    assert sum(d.applies for d in then) == 1


@pytest.mark.parametrize(("configured", "fallback"), [(None, 16), (32, 32), (1, 1), (40, 32)])
def test_fallback_is_configured_or_the_lowest_that_speculates(configured, fallback):
    world = settled(config=UNIFORM.model_copy(update={"fallback_budget": configured}))
    for _ in range(HOLD_TICKS + 2):
        decision = world.step(running_requests=None)
    assert decision.budget == fallback


def test_fallback_does_not_raise_a_lower_budget():
    config = UNIFORM.model_copy(update={"fallback_budget": 128})
    world = settled(batch=16.0, config=config)
    low = world.budget
    for _ in range(HOLD_TICKS + 2):
        decision = world.step(running_requests=None)
    assert (decision.reason, decision.budget) == (Reason.FALLBACK, low)


def test_a_table_in_force_needs_no_metrics_and_is_kept():
    world = settled(config=PolicyConfig(publish_table=True))
    table = world.table
    assert len(table) > 1
    for _ in range(HOLD_TICKS + 5):
        decision = world.step(running_requests=None)
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.LOAD_MISSING)
    assert world.table == table


def test_sight_regained_it_decides_again():
    world = settled()
    before = world.budget
    for _ in range(HOLD_TICKS + 2):
        world.step(running_requests=None)
    assert world.budget == 16
    world.steps(4)
    assert world.budget == before


def test_counter_reset_is_held_for_one_tick_and_learnt_from_again():
    world = settled()
    world.totals.clear()
    world.run()
    assert world.decide().reason is Reason.COUNTER_RESET
    assert world.step().reason in (Reason.OPTIMAL, Reason.WITHIN_TOLERANCE)


def test_a_restarted_server_gets_its_budget_back():
    world = settled()
    wanted = world.budget
    world.restart(budget=256)
    decision = world.step()
    assert (decision.action, decision.reason, decision.budget) == (
        Action.SET_BUDGET,
        Reason.RESTART_REAPPLY,
        wanted,
    )
    assert world.step().action is Action.HOLD


def test_a_restart_without_metrics_still_gets_the_budget_back():
    world = settled()
    wanted = world.budget
    world.restart(budget=256)
    decision = world.step(running_requests=None, counters=None)
    assert (decision.reason, decision.budget) == (Reason.RESTART_REAPPLY, wanted)


def test_a_restart_that_kept_the_budget_is_said():
    world = settled()
    world.restart(budget=world.budget)
    decision = world.step()
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.SERVER_RESTARTED)


def test_a_restart_with_other_tiers_forgets_the_curves():
    world = settled()
    world.restart(budget=8)
    world.tiers = (1, 4, 8)
    decision = world.step()
    assert decision.budget in world.tiers
    world.steps(10)
    assert world.budget in world.tiers


@pytest.mark.parametrize("skew", [-600.0, 600.0])
def test_the_servers_clock_does_not_matter(skew):
    world = settled()
    decisions = [world.step(producer_timestamp=world.now + skew) for _ in range(20)]
    assert {d.reason for d in decisions} <= {Reason.OPTIMAL, Reason.WITHIN_TOLERANCE}


def test_a_frozen_producer_is_noticed_even_if_it_answers():
    world = settled()
    decisions = [world.step(producer_timestamp=77.0) for _ in range(8)]
    assert decisions[-1].reason is Reason.PRODUCER_FROZEN
    assert decisions[2].reason is not Reason.PRODUCER_FROZEN


def test_an_idle_server_whose_rounds_stand_still_is_not_frozen():
    world = settled()
    idle = {"producer_timestamp": 77.0, "producer_ticks_when_idle": False}
    decisions = [world.step(batch=0.0, **idle) for _ in range(10)]
    assert Reason.PRODUCER_FROZEN not in {d.reason for d in decisions}
    busy = [world.step(batch=4.0, **idle) for _ in range(8)]
    assert busy[-1].reason is Reason.PRODUCER_FROZEN


@pytest.mark.parametrize("name", ["token_usage", "arrival_rate", "mean_output_tokens"])
def test_what_only_refines_a_decision_does_not_block_it(name):
    decision = settled().step(**{name: NAN})
    assert decision.reason in (Reason.OPTIMAL, Reason.WITHIN_TOLERANCE)
    assert any(e.fault is Fault.NAN and e.detail == name for e in decision.explanation.faults)


def test_counters_that_are_no_numbers_are_left_out():
    world = settled()
    row = replace(world.counters().by_budget[0], seconds=NAN)
    decision = world.step(counters=replace(world.counters(), by_budget=(row,)))
    assert any(e == SourceError(Signal.ROUNDS, Fault.NAN) for e in decision.explanation.faults)
    assert decision.reason in (Reason.OPTIMAL, Reason.WITHIN_TOLERANCE)
    assert world.step().reason in (Reason.OPTIMAL, Reason.WITHIN_TOLERANCE)


def test_nothing_known_is_said():
    world = World(config=UNIFORM)
    decision = world.step(budget=None)
    assert (decision.action, decision.reason, decision.budget) == (
        Action.HOLD,
        Reason.BUDGET_UNKNOWN,
        None,
    )


def test_read_back_missing_it_goes_on_with_what_it_knew():
    world = settled()
    decision = world.step(batch=32.0, budget=None)
    assert (decision.action, decision.reason) == (Action.SET_BUDGET, Reason.FASTER_DOWN)


def test_no_curve_yet_is_said():
    world = World(config=UNIFORM, cost=lambda n, b: 1.0)
    assert world.step().reason is Reason.NO_ACCEPT_CURVE


def test_no_tier_in_range_is_said():
    world = World(config=UNIFORM.model_copy(update={"min_budget": 300}))
    decision = world.step()
    assert (decision.action, decision.reason) == (Action.HOLD, Reason.NO_TIER_IN_RANGE)


@pytest.mark.parametrize("governor", [Governor.PINNED, Governor.OFF])
def test_a_pin_and_off_need_no_metrics(governor):
    config = UNIFORM.model_copy(update={"governor": governor, "pinned_budget": 100})
    world = World(config=config)
    decision = world.step(running_requests=None)
    if governor is Governor.PINNED:
        assert (decision.reason, world.budget) == (Reason.PINNED, 64)
    else:
        assert (decision.reason, decision.action, world.budget) == (Reason.OFF, Action.HOLD, 256)
