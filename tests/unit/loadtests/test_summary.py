"""Rates, percentiles, goodput and verdicts of records that are known to the millisecond."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadtests.saturation import saturation
from loadtests.slo import goodput
from loadtests.summary import summarise, tokens_between, verdict
from loadtests.thresholds import broken, parse_threshold
from tests.unit.loadtests.build import answered, config, failed

KEYS = ("ttft", "tpot", "itl", "e2e_latency")


def test_rates_and_percentiles() -> None:
    records = [
        answered(i, due=float(i), ttft=0.1 + 0.01 * i, tpot=0.02, tokens=11) for i in range(10)
    ]
    found = summarise(config(rate=1, seconds=10), records, window_end=10.0)
    last = 9 + 0.19 + 0.2
    assert found["duration"] == pytest.approx(last)
    assert found["completed"] == 10
    assert found["request_throughput"] == pytest.approx(10 / last)
    assert found["output_throughput"] == pytest.approx(110 / last)
    assert found["total_throughput"] == pytest.approx(160 / last)
    ttft = 100 + 10 * np.arange(10)
    assert found["mean_ttft_ms"] == pytest.approx(ttft.mean())
    assert found["median_ttft_ms"] == pytest.approx(145)
    assert found["std_ttft_ms"] == pytest.approx(ttft.std())
    assert found["p99_ttft_ms"] == pytest.approx(np.percentile(ttft, 99))
    assert found["p99_tpot_ms"] == pytest.approx(20)
    assert found["mean_itl_ms"] == pytest.approx(20)
    assert found["median_e2e_latency_ms"] == pytest.approx(345)
    assert found["concurrency"] == pytest.approx(sum(ttft / 1000 + 0.2) / last)


def test_the_window_counts_tokens_of_every_request_and_no_idle_end() -> None:
    records = [
        answered(0, due=0.0, ttft=1.0, tpot=1.0, tokens=4),
        answered(1, due=3.0, ttft=0.5, tpot=1.0, tokens=5),
    ]
    assert tokens_between(records, 2.0, 5.0) == 5
    records[0].warmup = True
    found = summarise(config(seconds=5, warmup=2), records, window_end=5.0)
    assert found["window_output_throughput"] == pytest.approx(5 / 3)
    assert found["output_throughput"] == pytest.approx(5 / (7.5 - 2))
    assert (found["requests"], found["warmup_requests"]) == (1, 1)


def test_failures_are_counted_and_their_latencies_are_not() -> None:
    records = [answered(0), answered(1, due=1.0), failed(2, 2.0, "http"), failed(3, 3.0, "stalled")]
    records.append(failed(4, 0.0, "cut"))
    records[-1].warmup = True
    found = summarise(config(seconds=4), records, window_end=4.0)
    assert (found["requests"], found["completed"], found["failed"]) == (4, 2, 2)
    assert found["failure_rate"] == pytest.approx(0.5)
    assert found["failures_by_kind"] == {"http": 1, "stalled": 1}
    assert found["warmup_failed"] == 1
    assert found["p99_ttft_ms"] == pytest.approx(100)


def test_nothing_answered_has_no_latency() -> None:
    found = summarise(config(seconds=4), [failed(0), failed(1, 1.0)], window_end=4.0)
    assert all(found[f"median_{name}_ms"] is None for name in KEYS)
    assert found["failure_rate"] == 1.0
    assert verdict(config(seconds=4), found, lost=0) == ["no request was answered"]


def test_failures_stand_in_the_denominator_of_goodput() -> None:
    records = [
        answered(0, ttft=0.1, tpot=0.01),
        answered(1, ttft=0.6, tpot=0.01),
        answered(2, ttft=0.1, tpot=0.09),
        failed(3),
    ]
    cut = answered(4)
    cut.status = "aborted"
    found = goodput([*records, cut], {"ttft": 500.0, "tpot": 50.0}, seconds=2.0)
    assert found["request_goodput"] == pytest.approx(0.5)
    assert found["slo_attainment"] == pytest.approx(0.25)
    assert found["slo_attainment_by_metric"] == {"ttft": 0.5, "tpot": 0.5}


def test_tokens_a_round() -> None:
    records = [answered(0), answered(1, due=1.0), answered(2, due=2.0)]
    records[0].verify_rounds, records[0].accepted_drafts = 5, 6
    records[1].verify_rounds, records[1].accepted_drafts = 5, 4
    assert summarise(config(), records, 3.0)["accept_length"] == pytest.approx(2.0)


def queue(rate: float, service: float, seconds: float) -> list:
    """One server that answers in order; `service` seconds each."""
    free, records = 0.0, []
    for i in range(int(rate * seconds)):
        due = i / rate
        free = max(free, due) + service
        record = answered(i, due=due, ttft=free - due, tpot=0.0, tokens=1)
        record.end = free
        records.append(record)
    return records


def test_a_growing_backlog_is_over_saturation() -> None:
    over = saturation(queue(5, 0.4, 30), 0.0, 30.0)
    assert over.over
    assert over.unserved_share == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("drain", [2.0, 10.0, 20.0])
def test_requests_without_any_answer_at_the_end_do_not_hide_it(drain: float) -> None:
    """What came last waited for the shortest time when the run ended, and would wait longest."""
    records = queue(5, 1.0, 30)
    for record in records:
        if record.end > 30 + drain:
            record.status, record.end, record.progress = "unfinished", 30 + drain, []
    assert sum(one.status == "unfinished" for one in records) > len(records) / 2
    assert saturation(records, 10.0, 30.0).over


@pytest.mark.parametrize("service", [0.05, 0.19])
def test_a_busy_server_that_keeps_up_is_not(service: float) -> None:
    assert not saturation(queue(5, service, 30), 0.0, 30.0).over


def test_a_burst_that_ends_is_not() -> None:
    random = np.random.default_rng(1)
    records = queue(5, 0.1, 60)
    for i, record in enumerate(records):
        if 40 < i < 80:
            record.progress = [(record.due + random.uniform(0.5, 3.0), 1)]
            record.end = record.progress[0][0]
    assert not saturation(records, 0.0, 60.0).over


def test_few_requests_prove_nothing() -> None:
    assert not saturation(queue(1, 3.0, 5), 0.0, 5.0).over


def test_late_sending_rejects_an_open_loop_only() -> None:
    records = [answered(i, due=float(i)) for i in range(20)]
    for record in records:
        record.sent = record.due + 0.05
    open_loop, closed = config(seconds=20), config(seconds=20, arrivals="closed")
    found = summarise(open_loop, records, 20.0)
    assert found["p99_send_lag_ms"] == pytest.approx(50)
    assert "p99 50.0 ms, limit 10 ms" in verdict(open_loop, found, lost=0)[0]
    assert verdict(closed, summarise(closed, records, 20.0), lost=0) == []


def test_a_run_that_is_not_whole_is_rejected() -> None:
    found = summarise(config(), [answered()], 1.0)
    found["unfinished"] = 2
    reasons = verdict(config(), found, lost=3, interrupted_at=7.0)
    assert [reason.split()[0] for reason in reasons] == ["the", "3", "2"]
    found["over_saturated"] = True
    assert len(verdict(config(), found, lost=0)) == 0, "more came than can be answered"


def test_unfinished_requests_are_no_failures_and_missed_the_slo() -> None:
    left = answered(1, due=1.0, tokens=3)
    left.status = "unfinished"
    found = summarise(config(seconds=4, slo="ttft:500"), [answered(0), left], window_end=4.0)
    assert (found["failed"], found["unfinished"], found["completed"]) == (0, 1, 1)
    assert found["slo_attainment"] == 0.5
    assert found["window_output_throughput"] * found["window"] == pytest.approx(14)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("p99_ttft_ms<=500", None),
        ("p99_ttft_ms<=50", "p99_ttft_ms<=50: p99_ttft_ms is 100"),
        ("failure_rate < 0.1", None),
        ("completed>=3", "completed>=3: completed is 1"),
        ("p99_tttft_ms<=5", "p99_tttft_ms<=5: p99_tttft_ms was not measured"),
        ("accept_length>1", "accept_length>1: accept_length was not measured"),
    ],
)
def test_thresholds(text: str, line: str | None) -> None:
    found = summarise(config(), [answered()], 1.0)
    assert broken([parse_threshold(text)], found) == ([line] if line else [])


@pytest.mark.parametrize(
    "text", ["", "a", "a<", "a=1", "a<=x", "a<=nan", "a<=inf", "A<=1", "a<=1<2"]
)
def test_what_is_no_threshold(text: str) -> None:
    with pytest.raises(ValueError, match="must be a metric"):
        parse_threshold(text)


def test_a_figure_that_is_nan_meets_no_threshold() -> None:
    assert broken([parse_threshold("x<=1")], {"x": math.nan}) == ["x<=1: x was not measured"]
