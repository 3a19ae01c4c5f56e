"""The engine's series: names, labels and arithmetic, scraped from a registry of their own."""

import os
import subprocess
import sys

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jetspec_sglang import metrics
from jetspec_sglang.metric_list import INFO_LABELS, METRICS, RANK_BUCKETS
from jetspec_sglang.metrics import EngineMetrics, Round, observe_many


@pytest.fixture
def scrape(monkeypatch):
    """An engine and a function that reads its series as {(name, labels...): value}."""
    registry = CollectorRegistry()
    import prometheus_client

    for kind in ("Counter", "Gauge", "Histogram"):
        made = getattr(prometheus_client, kind)

        def build(*args, _made=made, **kwargs):
            return _made(*args, **kwargs, registry=registry)

        monkeypatch.setattr(prometheus_client, kind, build)
    engine = EngineMetrics({"model_name": "m", "tp_rank": "0"})

    def read():
        text = generate_latest(registry).decode()
        return {
            (sample.name, *sorted((k, v) for k, v in sample.labels.items() if k not in SHARED)): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if all(sample.labels.get(k) == v for k, v in SHARED.items())
        }

    return engine, read


SHARED = {"model_name": "m", "tp_rank": "0"}


def a_round(budget=16, requests=2, tokens=5):
    seconds = {"draft": 0.1, "tree": 0.01, "verify": 0.5, "commit": 0.02}
    return Round(budget, requests, requests * budget, tokens, seconds)


def test_counters_are_kept_by_budget(scrape):
    engine, read = scrape
    engine.record(a_round(), [1, 3])
    engine.record(a_round(), [15])
    engine.record(a_round(budget=4, requests=1, tokens=1), [])
    engine.flush()
    got = read()
    sixteen, four = ("budget", "16"), ("budget", "4")
    assert got["jetspec_rounds_total", sixteen] == 2
    assert got["jetspec_request_rounds_total", sixteen] == 4
    assert got["jetspec_tokens_total", sixteen] == 10
    assert got["jetspec_rounds_total", four] == 1
    assert got["jetspec_round_seconds_total", sixteen, ("phase", "verify")] == pytest.approx(1.0)
    assert got["jetspec_verify_rows_total",] == 68
    assert got["jetspec_tree_budget",] == 4
    assert got["jetspec_last_round_timestamp_seconds",] > 1e9


def test_ranks_count_at_the_smallest_budget_that_holds_them(scrape):
    engine, read = scrape
    engine.record(a_round(), [1, 3, 15])
    engine.flush()
    got = read()
    within = {
        int(float(le)): got["jetspec_accepted_node_budget_bucket", ("budget", "16"), ("le", le)]
        for le in (f"{bucket}.0" for bucket in RANK_BUCKETS)
    }
    assert within[2] == 1  # rank 1 fits a budget of 2
    assert within[4] == 2  # rank 3 fits a budget of 4
    assert within[12] == 2
    assert within[16] == 3
    assert within[256] == 3


def test_the_curve_from_buckets_is_the_mean_accepted_length(scrape):
    engine, read = scrape
    engine.record(a_round(requests=2), [1, 2, 5])
    engine.flush()
    got = read()
    nodes = got["jetspec_accepted_node_budget_bucket", ("budget", "16"), ("le", "4.0")]
    rounds = got["jetspec_request_rounds_total", ("budget", "16")]
    assert 1 + nodes / rounds == 1 + 2 / 2


def test_nothing_is_written_twice(scrape):
    engine, read = scrape
    engine.record(a_round(), [1])
    engine.flush()
    before = read()
    engine.flush()
    assert read() == before


def test_info_and_plan_series(scrape):
    engine, read = scrape
    engine.describe({name: name for name in INFO_LABELS})
    engine.requested(32)
    engine.changed("api")
    engine.cost(16, 0.05)
    engine.flush()
    got = read()
    assert got["jetspec_info", *sorted((name, name) for name in INFO_LABELS)] == 1
    assert got["jetspec_tree_budget_requested",] == 32
    assert got["jetspec_budget_changes_total", ("source", "api")] == 1
    assert got["jetspec_round_cost_seconds", ("rows", "16")] == 0.05


def test_sglangs_own_writes_flush_ours(scrape, monkeypatch):
    engine, read = scrape
    monkeypatch.setattr(metrics, "_engine", engine)
    engine.record(a_round(), [])
    metrics.stats_logged(None, object(), object())
    assert read()["jetspec_rounds_total", ("budget", "16")] == 1


def test_the_list_is_what_is_exported(scrape):
    engine, read = scrape
    engine.record(a_round(), [1])
    engine.describe({name: name for name in INFO_LABELS})
    engine.requested(32)
    engine.cost(16, 0.05)
    engine.flush()
    exported = {}
    for name, *labels in read():
        base = name
        for suffix in ("_bucket", "_sum", "_count"):
            base = base.removesuffix(suffix)
        exported.setdefault(base, set()).update(dict(labels).keys() - {"le"})
    exported = {name: labels for name, labels in exported.items() if not name.endswith("_created")}
    assert exported == {metric.name: set(metric.labels) for metric in METRICS}


def test_a_change_is_counted_from_zero(scrape):
    _, read = scrape
    assert read()["jetspec_budget_changes_total", ("source", "api")] == 0


def histogram(registry=None):
    return Histogram("ranks", "text", ["budget"], buckets=RANK_BUCKETS, registry=registry)


def observe_one_by_one(child, counts):
    for value, count in counts.items():
        for _ in range(count):
            child.observe(value)


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {2: 1},
        {1: 2, 2: 3, 3: 1},  # below, on and above an edge
        {256: 2, 257: 3, 1000: 1},  # the last edge and beyond
        {value: value % 7 for value in range(1, 300)},
    ],
)
def test_many_observations_at_once_equal_single_ones(counts):
    texts = []
    for observe in (observe_many, observe_one_by_one):
        registry = CollectorRegistry()
        made = histogram(registry)
        for _ in range(2):
            observe(made.labels("16"), counts)
        texts.append(_without_created(generate_latest(registry).decode()))
    assert texts[0] == texts[1]


def test_many_observations_at_once_across_processes(tmp_path):
    script = f"""
import sys
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from jetspec_sglang.metrics import observe_many
made = Histogram("ranks", "text", ["budget"], buckets={RANK_BUCKETS})
counts = {{1: 2, 2: 3, 16: 1, 256: 2, 300: 4}}
child = made.labels("16")
if sys.argv[1] == "many":
    observe_many(child, counts)
else:
    for value, count in counts.items():
        for _ in range(count):
            child.observe(value)
registry = CollectorRegistry()
MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""
    texts = []
    for how in ("many", "single"):
        folder = tmp_path / how
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", script, how],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.append(done.stdout)
    assert "ranks_count" in texts[0]
    assert texts[0] == texts[1]


def test_many_observations_write_once_a_bucket(monkeypatch):
    made = histogram().labels("16")
    writes = []
    for value in (made._sum, *made._buckets):
        monkeypatch.setattr(value, "inc", writes.append)
    observe_many(made, {2: 1000, 3: 500, 4: 500})
    assert writes == [1000 * 2 + 500 * 3 + 500 * 4, 1000, 1000]


def _without_created(text):
    return [line for line in text.splitlines() if "_created" not in line]
