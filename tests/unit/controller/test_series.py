"""Samples: the text format, the window of rates, and the observation built from both."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetspec_controller.core import CostSource, Fault, Signal
from jetspec_controller.http_client import FetchError
from jetspec_controller.sources.exposition import ExpositionParser
from jetspec_controller.sources.observation import build
from jetspec_controller.sources.scrape import parse_loads
from jetspec_controller.sources.series import ACCEPTED_BUCKET, RUNNING, Snapshot
from jetspec_controller.sources.window import Totals, Window
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fake_engine import RANK_BUCKETS, FakeEngine


def exposition(engine: FakeEngine) -> str:
    return generate_latest(SimpleNamespace(collect=engine.families)).decode()


def observe(engine: FakeEngine, window: Window | None = None):
    snapshot = ExpositionParser().parse(exposition(engine), 0.0)
    return build("t", 0.0, snapshot, window or Window(60.0), age_s=0.0, percentile=0.95)


def test_parser_agrees_with_the_library() -> None:
    engine = FakeEngine(dp_size=2)
    engine.advance(5.0)
    text = exposition(engine)
    parser = ExpositionParser()
    for _ in range(2):
        snapshot = parser.parse(text, 1.0)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in snapshot.samples:
                    assert (sample.labels, sample.value) in list(snapshot.of(sample.name))


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=30), st.floats())
def test_any_label_value_survives(value: str, number: float) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    snapshot = ExpositionParser().parse(f'{RUNNING}{{x="{escaped}"}} {number!r}\n', 0.0)
    ((labels, read),) = snapshot.of(RUNNING)
    assert labels["x"] == value
    assert read == number or (math.isnan(read) and math.isnan(number))


@pytest.mark.parametrize(
    "line",
    [f"{RUNNING}{{x=1}} 2", f"{RUNNING}{{", f"{RUNNING}", f"{RUNNING} 1 2 3", f"{RUNNING} x"],
)
def test_broken_lines_are_errors(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        ExpositionParser().parse(line + "\n", 0.0)


def test_other_series_are_left_out() -> None:
    snapshot = ExpositionParser().parse(f'python_info 1\n{RUNNING}{{a="b"}} 3\n', 0.0)
    assert list(snapshot.samples) == [RUNNING]


def test_ranks_that_repeat_each_other_count_once() -> None:
    """Data-parallel attention: rank 0 has tensor ranks 0 and 1, rank 1 has 2 and 3."""
    lines = [
        f'{RUNNING}{{dp_rank="{tp // 2}",tp_rank="{tp}",pp_rank="{pp}"}} {1 + tp // 2}'
        for tp in range(4)
        for pp in range(2)
    ]
    snapshot = ExpositionParser().parse("\n".join(lines), 0.0)
    assert snapshot.ranks == 2
    assert snapshot.total(RUNNING) == 1 + 2


def test_priorities_are_parts_of_the_total() -> None:
    parts = "".join(
        f'{RUNNING}{{priority="{p}",tp_rank="0"}} {v}\n' for p, v in (("1", 2), ("2", 3))
    )
    for total in (f'{RUNNING}{{priority="",tp_rank="0"}} 5\n', f'{RUNNING}{{tp_rank="0"}} 5\n'):
        assert ExpositionParser().parse(total + parts, 0.0).total(RUNNING) == 5


def test_router_prefix_and_timestamps_are_understood() -> None:
    snapshot = ExpositionParser().parse("sglang_num_running_reqs 4 1700000000000\n", 0.0)
    assert snapshot.total(RUNNING) == 4


def test_observation_says_what_the_engine_did() -> None:
    engine = FakeEngine(running=4, waiting=2)
    engine.advance(10.0)
    seen = observe(engine)
    (counts,) = seen.counters.by_budget
    assert (seen.running_requests, seen.waiting_requests) == (4, 2)
    assert counts.budget == 64
    assert counts.request_rounds == 4 * counts.rounds
    assert counts.seconds == pytest.approx(engine.counters.seconds[64])
    assert seen.counters.edges == RANK_BUCKETS
    tau_32 = 1 + counts.accepted[seen.counters.edges.index(32)] / counts.request_rounds
    assert tau_32 == pytest.approx(engine.tau(32), abs=0.01)
    assert seen.cost.source is CostSource.GAUGES
    assert [p.seconds for p in seen.cost.points if p.rows == 64] == [engine.cost(64)]
    assert not seen.errors


def test_data_parallel_ranks_are_means_and_sums() -> None:
    engine = FakeEngine(running=4, dp_size=2)
    engine.advance(10.0)
    seen = observe(engine)
    assert seen.running_requests == 4, "a rank's round sees its own batch"
    assert seen.counters.by_budget[0].rounds == 2 * engine.counters.rounds[64]


def test_missing_histogram_is_not_tau_of_one() -> None:
    engine = FakeEngine()
    engine.advance(5.0)
    text = "\n".join(
        line for line in exposition(engine).splitlines() if "accepted_node" not in line
    )
    snapshot = ExpositionParser().parse(text + "\n", 0.0)
    seen = build("t", 0.0, snapshot, Window(60.0), age_s=0.0, percentile=0.95)
    assert seen.counters is None
    assert (Signal.ROUNDS, Fault.MISSING, ACCEPTED_BUCKET) in {
        (e.signal, e.fault, e.detail) for e in seen.errors
    }


def test_rates_and_percentiles_over_the_window() -> None:
    engine = FakeEngine(running=8, launch_budget=16, tokens_per_request=50.0, ttft_seconds=0.15)
    window = Window(60.0)
    for second in range(0, 40, 2):
        engine.advance(2.0)
        window.add(Totals.of(ExpositionParser().parse(exposition(engine), float(second))))
    rate = engine.counters.finished / 40
    assert window.arrival_rate == pytest.approx(rate, rel=0.02)
    assert window.tokens_per_second == pytest.approx(rate * 50, rel=0.02)
    assert window.mean_output_tokens == pytest.approx(50.0, rel=0.02)
    assert 0.1 < window.percentile("ttft", 0.95) <= 0.2
    per_token = engine.cost(8 * 16) / engine.tau(16)
    assert window.percentile("tpot", 0.5) == pytest.approx(per_token, rel=0.7)


def totals(at: float, count: float) -> Totals:
    return Totals(at, count, count, count, count, {}, {})


def test_window_starts_over_when_a_counter_falls() -> None:
    window = Window(60.0)
    for at, count in ((0, 0), (10, 100), (20, 5)):
        window.add(totals(at, count))
    assert window.arrival_rate is None
    window.add(totals(30, 25))
    assert window.arrival_rate == 2.0


def test_a_rate_is_of_the_last_seconds_and_a_length_of_the_whole_window() -> None:
    window = Window(60.0)
    for second in range(0, 44, 2):
        count = 10.0 * min(second, 30)
        window.add(Totals(float(second), count, count, 50.0 * count, count, {}, {}))
    assert (window.arrival_rate, window.tokens_per_second) == (0.0, 0.0)
    assert window.mean_output_tokens == 50.0


def test_window_ignores_repeated_scrapes_and_stays_small() -> None:
    window = Window(10.0)
    for step in range(10_000):
        window.add(totals(step * 0.01, step))
        window.add(totals(step * 0.01, step))
    assert len(window._kept) <= 10.0 / 0.5 + 3
    assert window.arrival_rate == pytest.approx(100.0)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12), st.floats(0.01, 0.99))
def test_percentile_lies_within_the_buckets(counts: list[float], q: float) -> None:
    edges = [0.1 * 2**i for i in range(len(counts) - 1)] + [math.inf]
    cumulative = [sum(counts[: i + 1]) for i in range(len(counts))]
    window = Window(60.0)
    window.add(totals(0.0, 0.0))
    buckets = dict(zip(edges, cumulative, strict=True))
    window.add(Totals(10.0, 1.0, 1.0, 1.0, 1.0, buckets, {}))
    value = window.percentile("ttft", q)
    if cumulative[-1] == 0:
        assert value is None
    else:
        assert 0.0 <= value <= max([0.0, *(edge for edge in edges if edge < math.inf)])


def test_loads_are_means_over_ranks() -> None:
    ranks = [
        {
            "timestamp": 10.0 + rank,
            "num_running_reqs": 2 * rank,
            "num_waiting_reqs": 0,
            "token_usage": 0.5,
            "max_total_num_tokens": 65536,
            "max_running_requests": 64,
        }
        for rank in range(2)
    ]
    load = parse_loads({"loads": ranks})
    assert (load.running, load.max_running, load.producer_timestamp) == (1.0, 64.0, 10.0)
    ranks[0]["timestamp"] = 0.0
    assert parse_loads({"loads": ranks}).running is None, "not published yet"


@pytest.mark.parametrize("body", [None, [], {}, {"loads": 3}, {"loads": [{}]}, {"loads": []}])
def test_loads_of_another_shape(body) -> None:
    with pytest.raises(FetchError):
        parse_loads(body)


def test_snapshot_counts_ranks_that_report() -> None:
    snapshot = Snapshot(0.0)
    assert snapshot.ranks == 1
    for rank in ("0", "1"):
        snapshot.add(RUNNING, {"dp_rank": rank, "tp_rank": "0"}, 1.0)
    assert snapshot.ranks == 2
