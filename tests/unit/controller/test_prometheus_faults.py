"""Faults between the controller and its servers when a Prometheus lies in between."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from jetspec_controller.core import Action, Reason

from tests.support.rig import Rig

pytestmark = pytest.mark.anyio

SAFE = 16
HOLD = {"policy": {"hold_s": 4.0}}
HOLD_TICKS = 3


def hangs(rig: Rig) -> None:
    rig.prometheus.hang = True


def http_503(rig: Rig) -> None:
    rig.prometheus.status = 503


def wants_a_token(rig: Rig) -> None:
    rig.prometheus.bearer = "another"


def html(rig: Rig) -> None:
    rig.prometheus.body = "<html>Bad gateway</html>"


def wrong_type(rig: Rig) -> None:
    rig.prometheus.result_type = "vector"


def not_a_number(rig: Rig) -> None:
    rig.prometheus.body = (
        '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric":'
        f' {{"__name__": "up", "instance": "{rig.name}"}}, "values": [[1, "many"]]}}]}}}}'
    )


def error_status(rig: Rig) -> None:
    rig.prometheus.body = '{"status": "error", "errorType": "bad_data", "error": "parse error"}'


def empty(rig: Rig) -> None:
    rig.prometheus.body = '{"status": "success", "data": {"resultType": "matrix", "result": []}}'


def instance_down(rig: Rig) -> None:
    rig.prometheus.down.add(rig.name)


def nan(rig: Rig) -> None:
    rig.server.faults.nan.add("sglang:num_running_reqs")


def not_jetspec(rig: Rig) -> None:
    rig.prometheus.body = (
        '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric":'
        f' {{"__name__": "up", "instance": "{rig.name}"}}, "values": [[9e9, "1"]]}}]}}}}'
    )


CASES: dict[str, tuple[Callable[[Rig], None], Reason, str]] = {
    "slow": (hangs, Reason.SOURCE_TIMEOUT, "timeout"),
    "http error": (http_503, Reason.SOURCE_HTTP, "http"),
    "wrong token": (wants_a_token, Reason.SOURCE_UNAUTHORISED, "unauthorised"),
    "not JSON": (html, Reason.SOURCE_PARSE, "parse"),
    "wrong type": (wrong_type, Reason.SOURCE_PARSE, "parse"),
    "wrong value": (not_a_number, Reason.SOURCE_PARSE, "parse"),
    "query error": (error_status, Reason.SOURCE_HTTP, "http"),
    "empty": (empty, Reason.SOURCE_EMPTY, "empty"),
    "up is 0": (instance_down, Reason.SERVER_DOWN, "down"),
    "NaN": (nan, Reason.LOAD_NAN, ""),
}


@pytest.mark.parametrize("case", CASES)
async def test_fault_holds_then_falls_back(make, case: str) -> None:
    cause, reason, metric = CASES[case]
    impatient = {"prometheus": {"timeout_s": 0.7}} if case == "slow" else {}
    async with make(prometheus=True, settings={**HOLD, **impatient}) as rig:
        assert (await rig.ticks(4)).budget == 64
        cause(rig)
        decision = await rig.ticks()
        assert (decision.reason, decision.action, decision.budget) == (reason, Action.HOLD, 64)
        if metric:
            labels = {"target": rig.name, "signal": "load", "reason": metric}
            assert rig.metric("scrape_errors_total", **labels) == 1
        decision = await rig.ticks(HOLD_TICKS)
        assert (decision.reason, decision.budget) == (Reason.FALLBACK, SAFE)
        assert rig.server.engine.budget == SAFE


async def test_prometheus_down_is_not_the_servers_fault(make) -> None:
    async with make(prometheus=True) as rig:
        await rig.ticks(4)
        await rig.prometheus.__aexit__()
        decision = await rig.ticks()
        assert (decision.reason, decision.budget) == (Reason.SOURCE_HTTP, 64)
        assert "Prometheus" in decision.explanation.faults[0].detail


async def test_stale_samples(make) -> None:
    async with make(prometheus=True) as rig:
        await rig.ticks(4)
        decision = await rig.ticks(6, scrape=False)
        assert (decision.reason, decision.budget) == (Reason.LOAD_STALE, 64)
        age = rig.metric("signal_age_seconds", target=rig.name, signal="load")
        assert age == pytest.approx(12.0, abs=1.1)


async def test_up_but_without_the_series(make) -> None:
    async with make(prometheus=True) as rig:
        not_jetspec(rig)
        assert (await rig.ticks()).reason is Reason.LOAD_MISSING


@pytest.mark.parametrize(
    ("name", "policy", "reason"),
    [
        ("jetspec_accepted_node_budget_bucket", {}, Reason.NO_ACCEPT_CURVE),
        ("jetspec_accepted_node_budget_bucket", {"publish_table": True}, Reason.NO_ACCEPT_CURVE),
        (
            "sglang:inter_token_latency_seconds_bucket",
            {"tpot_objective_s": 0.01},
            Reason.LATENCY_MISSING,
        ),
        (
            "sglang:time_to_first_token_seconds_bucket",
            {"ttft_objective_s": 0.1, "publish_table": True},
            Reason.LATENCY_MISSING,
        ),
    ],
)
async def test_native_histograms_hold_and_name_the_series(make, name, policy, reason) -> None:
    async with make(prometheus=True, settings={"policy": policy}) as rig:
        rig.prometheus.dropped = re.compile(name)
        rig.server.engine.running = 8
        decision = await rig.ticks(8)
        assert (decision.reason, decision.action, decision.budget) == (reason, Action.HOLD, 64)
        assert rig.server.applied == []
        assert name in [fault.detail for fault in decision.explanation.faults]


async def test_a_latency_histogram_that_nobody_needs_may_be_missing(make) -> None:
    async with make(prometheus=True) as rig:
        rig.prometheus.dropped = re.compile("sglang:.*_bucket")
        rig.server.engine.running = 8
        assert (await rig.ticks(6)).budget == 16


async def test_one_target_missing(make) -> None:
    async with make(prometheus=True, servers=2) as rig:
        missing = list(rig.prometheus.servers)[1]
        del rig.prometheus.servers[missing]
        rig.server.engine.running = 8
        decision = await rig.ticks(4)
        assert decision.budget == 16
        other = rig.service.loop.fleet[missing].decision
        assert (other.reason, other.budget) == (Reason.SOURCE_EMPTY, 64)


async def test_malformed_series_spoil_their_own_server_only(make) -> None:
    async with make(prometheus=True, servers=2) as rig:
        await rig.ticks(4)
        other = list(rig.prometheus.servers)[1]
        labels = {"instance": other, "tp_rank": "first"}
        rig.server.engine.running = 8
        for _ in range(2):
            rig.prometheus.keep("sglang:num_running_reqs", labels, rig.clock.now + 2.0, "1")
            await rig.ticks()
        assert rig.server.engine.budget == 16
        assert rig.service.loop.fleet[other].decision.reason is Reason.SOURCE_PARSE


async def test_series_without_an_instance(make) -> None:
    async with make(prometheus=True) as rig:
        rig.prometheus.body = (
            '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}}'
        )
        assert (await rig.ticks()).reason is Reason.SOURCE_PARSE


async def test_counter_reset(make) -> None:
    async with make(prometheus=True) as rig:
        await rig.ticks(12)
        rig.server.engine.counters.tokens[64] = 0.0
        decision = await rig.ticks()
        assert (decision.reason, decision.budget) == (Reason.COUNTER_RESET, 64)


@pytest.mark.parametrize("skew", [600.0, -600.0])
async def test_controller_clock_off_by_ten_minutes(make, skew: float) -> None:
    """Ages are taken on Prometheus' clock, so the controller's own does not matter."""
    async with make(prometheus=True) as rig:
        rig.service.loop.clock = lambda: rig.clock.now + skew
        rig.server.engine.running = 8
        decision = await rig.ticks(4)
        assert decision.budget == 16
        assert not decision.explanation.faults


async def test_one_query_a_tick_and_nothing_else(make) -> None:
    async with make(prometheus=True, servers=3) as rig:
        await rig.ticks(3)
        assert len(rig.prometheus.queries) == 3
        first, *later = rig.prometheus.queries
        assert first.endswith("[60s]")
        assert all(query.endswith("[30s]") for query in later)
        assert rig.server.calls["/metrics"] == rig.server.calls["/v1/loads"] == 0
