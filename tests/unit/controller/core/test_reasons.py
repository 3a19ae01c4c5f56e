"""Every reason and limit is reached in the mode it belongs to; what the KV cache has room for."""

from __future__ import annotations

from inspect import isfunction

import pytest
from jetspec_controller.core import (
    Clamp,
    Decision,
    LatencyPercentiles,
    PolicyConfig,
    Reason,
)

from tests.support import courses
from tests.support.courses import Run
from tests.support.world import affine, log_tau

RUNS: list[Run] = [
    thing
    for thing in vars(courses).values()
    if isfunction(thing) and thing.__module__ == courses.__name__ and thing is not courses.made
]

ONE_NUMBER_REASONS = {Reason.CONFIRMING, Reason.FASTER_DOWN, Reason.FASTER_UP}


@pytest.fixture(scope="module")
def by_default() -> list[Decision]:
    return [decision for run in RUNS for decision in run(PolicyConfig())]


def test_every_reason_is_reached_in_its_mode(by_default: list[Decision]) -> None:
    assert {d.reason for d in by_default} == set(Reason) - ONE_NUMBER_REASONS
    one_number = PolicyConfig(publish_table=False)
    reached = {
        d.reason
        for run in (courses.climbing, courses.flapping, courses.steady)
        for d in run(one_number)
    }
    assert reached >= ONE_NUMBER_REASONS


def test_every_limit_is_named_by_default(by_default: list[Decision]) -> None:
    assert {clamp for d in by_default for clamp in d.explanation.clamps} == set(Clamp)


@pytest.mark.parametrize("publish_table", [True, False])
def test_a_full_kv_cache_is_the_reason(publish_table: bool) -> None:
    for decision in courses.full(PolicyConfig(publish_table=publish_table)):
        assert decision.reason is Reason.KV_PRESSURE
        assert Clamp.KV_PRESSURE in decision.explanation.clamps


@pytest.mark.parametrize("publish_table", [True, False])
def test_a_rising_load_cuts_what_the_cache_has_no_room_for(publish_table: bool) -> None:
    """The batch seen stays the same: only the rate of requests tells what comes."""
    config = PolicyConfig(publish_table=publish_table)
    before, after = courses.made(config, cost=courses.SLOW, batch=8.0), courses.filling(config)
    wide = max(b for _, b in before.steps(20)[-1].table or ((1, before.budget),))
    cut = next(d for d in after if d.applies)
    assert (cut.reason, cut.explanation.batch_now) == (Reason.KV_PRESSURE, 8.0)
    assert cut.explanation.batch_expected > 20
    assert max((b for _, b in cut.table), default=cut.budget) == cut.explanation.kv_ceiling < wide


@pytest.mark.parametrize("publish_table", [True, False])
def test_a_cold_server_reserves_for_the_requests_that_come(publish_table: bool) -> None:
    """No curve yet and nothing finished: arrivals alone say how many will run."""
    cold = courses.made(PolicyConfig(publish_table=publish_table), batch=1.0)
    known = {"kv_tokens": 20_000.0, "token_usage": 0.02, "counters": None, "cost": None}
    quiet = cold.step(arrival_rate=0.1, **known)
    assert (quiet.reason, quiet.applies) == (Reason.NO_ACCEPT_CURVE, False)
    rush = cold.step(arrival_rate=30.0, **known)
    assert (rush.reason, rush.applies, rush.budget < 256) == (Reason.KV_PRESSURE, True, True)


def test_one_number_keeps_an_objective_for_the_batch_that_comes() -> None:
    config = PolicyConfig(publish_table=False, tpot_objective_s=0.0125)
    latency = LatencyPercentiles(0.95, tpot_s=0.011)
    reached = {}
    for rate in (0.5, 40.0):
        world = courses.made(config, cost=affine(0.01, 1e-4, 5e-4), tau=log_tau(0.3), batch=2.0)
        reached[rate] = [
            world.step(latency=latency, arrival_rate=rate, mean_output_tokens=200.0)
            for _ in range(6)
        ][-1]
    feasible = {
        rate: [c.budget for c in d.explanation.candidates if c.feasible]
        for rate, d in reached.items()
    }
    assert len(feasible[40.0]) < len(feasible[0.5])


def test_a_lower_high_water_mark_never_leaves_more_room() -> None:
    ceilings = []
    for mark in (1.0, 0.95, 0.8, 0.6, 0.3):
        config = PolicyConfig(kv_high_water=mark, look_ahead_s=2.0)
        first = courses.filling(config)[0].explanation.kv_ceiling
        ceilings.append(first or 10_000)
    assert ceilings == sorted(ceilings, reverse=True)
    assert ceilings[-1] < ceilings[0]
