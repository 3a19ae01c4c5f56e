"""Somebody else who sets the same budgets is noticed; nothing else is taken for such a one."""

from __future__ import annotations

import pytest
from jetspec_controller.actuators import ApplyResult, Outcome
from jetspec_controller.core import BudgetReadback, Reason
from jetspec_controller.writes import SPAN_S, Writes

from tests.support.rig import Rig

pytestmark = pytest.mark.anyio

TIERS = (1, 16, 32, 64)


def state(budget: int, consistent: bool = True) -> BudgetReadback:
    return BudgetReadback(budget, TIERS, 64, consistent=consistent)


def events(rig: Rig) -> list[str]:
    return [event["event"] for event in rig.events()]


def silent(rig: Rig) -> bool:
    return rig.metric("second_writer", target=rig.name) == 0 and "second_writer" not in events(rig)


@pytest.mark.parametrize("publish_table", [False, True])
async def test_two_controllers_that_disagree_both_notice(make, publish_table: bool) -> None:
    shared = {"publish_table": publish_table}
    low, high = {"max_budget": 16, **shared}, {"min_budget": 32, **shared}
    async with (
        make(settings={"policy": low}) as first,
        make(adopt=first.servers, clock=first.clock, settings={"policy": high}) as second,
    ):
        reasons: dict[str, set[Reason]] = {"first": set(), "second": set()}
        for _ in range(12):
            reasons["first"].add((await first.ticks()).reason)
            await second.service.loop.tick()
            reasons["second"].add(second.decision.reason)
        for name, rig in (("first", first), ("second", second)):
            assert Reason.SECOND_WRITER in reasons[name]
            assert rig.metric("second_writer", target=rig.name) == 1
            assert rig.metric("drift_total", target=rig.name) >= 1
            assert rig.decision.explanation.overwrites >= 2
        assert events(first).count("second_writer") == 2, "one of each controller, not one a tick"
        sent = first.metric("applies_total", target=first.name, result="applied")
        assert sent < 12, "the decision is sent again ever more slowly"


async def test_one_change_by_hand_is_drift_and_no_second_writer(make) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.engine.budget = 128
        assert (await rig.ticks()).reason is Reason.DRIFT_REAPPLY
        await rig.ticks(5)
        assert silent(rig)


async def test_restarts_are_no_second_writer(make) -> None:
    async with make() as rig:
        rig.server.engine.running = 8
        await rig.ticks(4)
        for _ in range(3):
            await rig.server.restart()
            await rig.ticks(4)
        assert silent(rig)


async def test_changes_while_paused_are_no_second_writer(make) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.service.set_paused(True, "test")
        for budget in (16, 128, 16, 128):
            rig.server.engine.budget = budget
            await rig.ticks()
        rig.service.set_paused(False, "test")
        await rig.ticks(3)
        assert silent(rig)


@pytest.mark.parametrize("fault", ["refuse", "ignore_control"])
async def test_a_server_that_does_not_obey_is_no_second_writer(make, fault: str) -> None:
    async with make() as rig:
        await rig.ticks(4)
        setattr(rig.server.faults, fault, True)
        rig.server.engine.running = 8
        await rig.ticks(12)
        assert silent(rig)


def test_a_call_of_unknown_outcome_is_not_taken_for_somebody_else() -> None:
    writes = Writes()
    for now, budget in enumerate((64, 16, 64, 16)):
        writes.sent(ApplyResult(Outcome.TIMEOUT))
        writes.read(state(budget), ours=True, now=float(now))
    assert writes.overwrites(4.0) == 0


def test_ranks_that_disagree_say_nothing_about_who_wrote() -> None:
    writes = Writes()
    for now, consistent in enumerate((True, False, True, False)):
        writes.read(state(64 - now, consistent), ours=True, now=float(now))
    assert writes.overwrites(4.0) == 0


def test_overwrites_are_forgotten_in_time() -> None:
    writes = Writes()
    for now, budget in enumerate((64, 16, 64)):
        writes.read(state(budget), ours=True, now=float(now))
    assert writes.overwrites(3.0) == 2
    assert writes.overwrites(1.0 + SPAN_S) == 1
    assert writes.overwrites(2.0 + SPAN_S) == 0
