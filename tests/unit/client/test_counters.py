"""Counters of a benchmark, read from what `EngineMetrics` writes."""

import math

import pytest
from prometheus_client import REGISTRY, generate_latest

from jetspec_sglang.client.counters import Counters
from jetspec_sglang.metrics import PHASES, EngineMetrics, Round

TEXT = """\
# TYPE jetspec_rounds counter
jetspec_rounds_total{budget="16",rank="0"} 3
jetspec_rounds_total{budget="16",rank="1"} 2
jetspec_rounds_total{budget="8",rank="0"} 7
# TYPE jetspec_tree_budget gauge
jetspec_tree_budget{rank="0"} 16
# TYPE sglang_rounds counter
sglang_rounds_total{budget="16"} 99
"""


def test_sums_series_of_a_budget_and_leaves_gauges_and_others_out():
    counters = Counters.parse(TEXT)
    assert (counters.rounds(16), counters.rounds(8), counters.rounds(4)) == (5, 7, 0)
    assert len(counters.values) == 2


def test_subtraction_counts_series_that_began_in_between():
    earlier = Counters.parse('# TYPE jetspec_rounds counter\njetspec_rounds_total{budget="8"} 4\n')
    delta = Counters.parse(TEXT) - earlier
    assert (delta.rounds(8), delta.rounds(16)) == (3, 5)


@pytest.fixture
def metrics():
    before = set(REGISTRY._collector_to_names)
    yield EngineMetrics({"model_name": "m"})
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


def test_reads_back_what_the_engine_wrote(metrics):
    seconds = {phase: 0.5 + i for i, phase in enumerate(PHASES)}
    metrics.record(Round(64, requests=2, rows=128, tokens=7, seconds=seconds), [1, 3, 5, 9, 40])
    metrics.flush()
    counters = Counters.parse(generate_latest(REGISTRY).decode())
    assert counters.tau(64) == 7 / 2
    assert counters.phase_seconds(64) == seconds
    # Ranks 1 and 3 lie within 4 nodes, 1, 3 and 5 within 8, all within 64.
    assert counters.counterfactual_tau(64, 4) == 1 + 2 / 2
    assert counters.counterfactual_tau(64, 8) == 1 + 3 / 2
    assert counters.counterfactual_tau(64, 64) == counters.tau(64)


def test_no_round_is_nan_and_no_edge_an_error(metrics):
    metrics.record(Round(16, 1, 16, 1, dict.fromkeys(PHASES, 0.0)), [1])
    metrics.flush()
    counters = Counters.parse(generate_latest(REGISTRY).decode())
    assert math.isnan(counters.tau(32))
    with pytest.raises(KeyError):
        counters.counterfactual_tau(16, 5)
