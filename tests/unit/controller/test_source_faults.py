"""Faults of the metrics: each has its reason, keeps the budget, and shows in a metric.

Every case starts from a server that runs budget 64 at one request. A fault must never be taken
for an idle server: the budget does not rise, and after `hold_s` it falls to the safe one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from jetspec_controller.core import Action, Reason

from tests.support.rig import IMPATIENT, Rig

pytestmark = pytest.mark.anyio

HOLD = {"policy": {"hold_s": 4.0}}
HOLD_TICKS = 3
SAFE = 16


def no_series(rig: Rig) -> None:
    rig.server.faults.body["/metrics"] = "# nothing here\n"
    rig.server.faults.body["/v1/loads"] = '{"loads": []}'


def not_metrics(rig: Rig) -> None:
    rig.server.faults.body["/metrics"] = "sglang:num_running_reqs{ broken\n"
    rig.server.faults.body["/v1/loads"] = "<html>"


def refuses_key(rig: Rig) -> None:
    rig.server.faults.status = {"/v1/loads": 401, "/metrics": 403}


def http_500(rig: Rig) -> None:
    rig.server.faults.status = {"/v1/loads": 500, "/metrics": 500}


def hangs(rig: Rig) -> None:
    rig.server.faults.hang = {"/v1/loads", "/metrics"}


def drops(rig: Rig) -> None:
    rig.server.faults.drop = {"/v1/loads", "/metrics"}


SCRAPE_FAULTS: dict[str, tuple[Callable[[Rig], None], Reason]] = {
    "empty": (no_series, Reason.SOURCE_EMPTY),
    "parse": (not_metrics, Reason.SOURCE_PARSE),
    "unauthorised": (refuses_key, Reason.SOURCE_UNAUTHORISED),
    "http": (http_500, Reason.SOURCE_HTTP),
    "timeout": (hangs, Reason.SOURCE_TIMEOUT),
    "down": (drops, Reason.SERVER_DOWN),
}


@pytest.mark.parametrize("fault", SCRAPE_FAULTS)
async def test_scrape_fault_holds_then_falls_back(make, fault: str) -> None:
    cause, reason = SCRAPE_FAULTS[fault]
    async with make(settings={**HOLD, **(IMPATIENT if fault == "timeout" else {})}) as rig:
        before = await rig.ticks(4)
        assert (before.budget, rig.metric("target_up", target=rig.name)) == (64, 1)
        cause(rig)
        decision = await rig.ticks()
        assert (decision.reason, decision.action, decision.budget) == (reason, Action.HOLD, 64)
        assert rig.metric("target_up", target=rig.name) == 0
        errors = rig.metric("scrape_errors_total", target=rig.name, signal="load", reason=fault)
        assert errors == 1
        decision = await rig.ticks(HOLD_TICKS)
        assert (decision.reason, decision.budget) == (Reason.FALLBACK, SAFE)
        assert rig.server.engine.budget == SAFE
        rig.server.faults.__init__()
        decision = await rig.ticks()
        assert decision.reason not in {reason, Reason.FALLBACK}


async def test_nan_load_is_not_zero_load(make) -> None:
    async with make(settings={"scrape": {"loads": False}}) as rig:
        await rig.ticks(4)
        rig.server.faults.nan.add("sglang:num_running_reqs")
        decision = await rig.ticks()
        assert (decision.reason, decision.budget) == (Reason.LOAD_NAN, 64)


async def test_missing_load_gauge(make) -> None:
    async with make(settings={"scrape": {"loads": False}}) as rig:
        await rig.ticks(4)
        rig.server.faults.body["/metrics"] = "jetspec_tree_budget 64\njetspec_tokens_total 5\n"
        decision = await rig.ticks()
        assert decision.reason is Reason.SOURCE_PARSE, "a counter without its budget label"
        rig.server.faults.body["/metrics"] = 'jetspec_round_cost_seconds{rows="1"} 0.01\n'
        decision = await rig.ticks()
        assert (decision.reason, decision.budget) == (Reason.LOAD_MISSING, 64)


async def test_frozen_scheduler_behind_a_live_http_server(make) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.engine.frozen = True
        decision = await rig.ticks(7)
        assert (decision.reason, decision.budget) == (Reason.PRODUCER_FROZEN, 64)
        rig.server.engine.frozen = False
        assert (await rig.ticks()).reason is not Reason.PRODUCER_FROZEN


async def test_counter_that_falls(make) -> None:
    async with make() as rig:
        await rig.ticks(12)
        rig.server.engine.counters.tokens[64] = 0.0
        decision = await rig.ticks()
        assert (decision.reason, decision.budget) == (Reason.COUNTER_RESET, 64)
        assert (await rig.ticks()).reason is not Reason.COUNTER_RESET


@pytest.mark.parametrize("skew", [600.0, -600.0])
async def test_server_clock_off_by_ten_minutes(make, skew: float) -> None:
    async with make() as rig:
        rig.server.faults.skew = skew
        rig.server.engine.running = 8
        decision = await rig.ticks(4)
        assert (decision.budget, rig.server.engine.budget) == (16, 16)
        assert not decision.explanation.faults
        assert rig.metric("clock_skew_seconds", target=rig.name) == pytest.approx(skew, abs=1.5)


async def test_one_server_down_leaves_the_other_alone(make) -> None:
    async with make(servers=2) as rig:
        await rig.ticks(4)
        await rig.servers[1].stop()
        rig.server.engine.running = 8
        decision = await rig.ticks(2)
        assert decision.budget == 16
        other = rig.service.loop.fleet[list(rig.service.loop.fleet)[1]].decision
        assert other is not None
        assert (other.reason, other.budget) == (Reason.SERVER_DOWN, 64)
