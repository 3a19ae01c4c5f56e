"""Every metric that a dashboard or a rule names is emitted or recorded, and read as what it is."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jetspec_controller.metric_list import METRICS as CONTROLLER

from dashboards.promql import RANKS, REPLICAS
from dashboards.rules import ALERTS, recordings
from dashboards.sglang_series import HTTP, SCHEDULER, TOKENIZER
from dashboards.sglang_series import METRICS as SGLANG
from jetspec_sglang.metric_list import METRICS as ENGINE
from tests.support.promql import Selected, dashboards, expressions, names, selected

PARTS = ("bucket", "sum", "count")


def exported(name: str, kind: str) -> set[str]:
    return {f"{name}_{part}" for part in PARTS} if kind == "histogram" else {name}


OURS = {name for one in ENGINE for name in exported(one.name, one.kind)}
OURS |= {name for one in CONTROLLER for name in exported(one.exported, one.kind)}
COUNTERS = {one.name for one in ENGINE if one.kind == "counter"}
COUNTERS |= {one.exported for one in CONTROLLER if one.kind == "counter"}
COUNTERS |= {name for name in OURS if name.endswith(("_bucket", "_sum", "_count"))}
SGLANG_PATTERNS = {
    f"sglang[:_]{name}": one for one in SGLANG for name in exported(one.name, one.kind)
}
RECORDED_COUNTERS = {
    record for record in recordings() if re.search(r"_(total|bucket):max$", record)
}
ALERTING = [
    rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
]
IN_DASHBOARDS = [
    pytest.param(expr, id=f"{name}: {place}")
    for name, dashboard in dashboards().items()
    for place, expr in expressions(dashboard)
]
IN_ALERTS = [pytest.param(rule["expr"], id=rule["alert"]) for rule in ALERTING]
IN_RECORDINGS = [pytest.param(rule.expr, id=rule.record) for rule in recordings().values()]


@pytest.mark.parametrize("expr", IN_DASHBOARDS + IN_ALERTS)
def test_every_name_is_emitted_or_recorded(expr) -> None:
    assert names(expr) <= OURS | set(recordings()) | {"up"}


@pytest.mark.parametrize("expr", IN_RECORDINGS)
def test_every_source_of_a_recording_exists(expr) -> None:
    assert names(expr) <= OURS | set(recordings()) | set(SGLANG_PATTERNS)


def test_sglangs_names_are_matched_once() -> None:
    """By both prefixes, each in one recording rule, nowhere else."""
    matched = [name for rule in recordings().values() for name in names(rule.expr)]
    assert sorted(n for n in matched if n.startswith("sglang")) == sorted(
        {n for n in matched if n in SGLANG_PATTERNS}
    )
    bases = {re.sub("_bucket$", "", n.removeprefix("sglang[:_]")) for n in matched}
    assert bases >= {one.name for one in SGLANG}, "a listed series that no rule reads"


def test_variables_ask_for_series_that_exist() -> None:
    for dashboard in dashboards().values():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                series, label = re.fullmatch(
                    r"label_values\((.+), (\w+)\)", variable["query"]["query"]
                ).groups()
                (selector,) = selected(series)
                assert selector.name in OURS | set(recordings())
                assert label in {"job", "instance", "model_name", "target", "budget"}


def test_every_recording_is_used() -> None:
    used: set[str] = set()
    for param in IN_DASHBOARDS + IN_ALERTS + IN_RECORDINGS:
        used |= names(param.values[0])
    assert set(recordings()) - used == set()


def test_recordings_are_named_level_metric_operation() -> None:
    for record, rule in recordings().items():
        assert re.fullmatch(r"[a-z_]+:[a-z0-9_]+:[a-z0-9_]+", record)
        operation = record.rsplit(":", 1)[1]
        if operation == "max":
            assert rule.expr.startswith("max without")
        elif window := re.search(r"rate(\d+[mh])$", operation):
            assert f"[{window[1]}]" in rule.expr or window[1] in "".join(names(rule.expr))


def test_every_series_of_ours_is_shown_or_alerted_on() -> None:
    used: set[str] = set()
    for param in IN_DASHBOARDS + IN_ALERTS + IN_RECORDINGS:
        used |= names(param.values[0])
    shown = {re.sub("_(bucket|sum|count)$", "", name) for name in used}
    every = {one.name for one in ENGINE} | {one.exported for one in CONTROLLER}
    unused = every - shown
    # Under a table the uniform budget asked for says nothing of what runs.
    assert unused == {"jetspec_tree_budget_requested"}


def counters(expr: str) -> Iterator[Selected]:
    for selector in selected(expr):
        if selector.name in COUNTERS | RECORDED_COUNTERS:
            yield selector


@pytest.mark.parametrize("expr", IN_DASHBOARDS + IN_ALERTS)
def test_counters_are_read_as_rates(expr) -> None:
    for selector in counters(expr):
        first = selector.around[0] if selector.around else ""
        appears = "unless" in expr and "offset" in expr  # the moment a counter first appears
        assert first in {"rate", "increase", "resets"} or appears, selector


@pytest.mark.parametrize("expr", IN_DASHBOARDS + IN_ALERTS + IN_RECORDINGS)
def test_a_gauge_is_never_read_as_a_counter(expr) -> None:
    for selector in selected(expr):
        if selector.around and selector.around[0] in {"rate", "increase", "resets"}:
            known = COUNTERS | RECORDED_COUNTERS
            assert selector.name in known, selector


@pytest.mark.parametrize("expr", IN_DASHBOARDS)
def test_panels_count_copies_once(expr) -> None:
    """Every selector of a panel stands inside a `max without` of the labels of its copies; sums
    over time of recorded cells are recorded without copies."""
    for selector in selected(expr):
        if selector.around[0] == "sum_over_time":
            continue
        assert "max" in selector.around, selector
    for group in re.findall(r"max without \(([^)]*)\)", expr):
        assert set(group.split(", ")) in (set(REPLICAS), set(RANKS + REPLICAS))


# -- SGLang's own names, against the source of the installed SGLang -----------------------------


def source() -> Path:
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))) / "srt" / "observability"


@pytest.fixture(scope="module")
def declared() -> dict[str, tuple[str, set[str]]]:
    """Kind and extra labels by name, from every call with `name="sglang:..."`."""
    found = {}
    for file in ("metrics_collector.py", "http_request_metrics.py"):
        for node in ast.walk(ast.parse((source() / file).read_text())):
            if not isinstance(node, ast.Call):
                continue
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            name = keywords.get("name")
            if isinstance(name, ast.Constant) and str(name.value).startswith("sglang:"):
                kind = getattr(node.func, "id", getattr(node.func, "attr", ""))
                labels = {
                    part.value
                    for part in ast.walk(keywords.get("labelnames", ast.Constant(None)))
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
                found[name.value.removeprefix("sglang:")] = (kind.lower(), labels)
    return found


@pytest.mark.parametrize("metric", SGLANG, ids=lambda metric: metric.name)
def test_sglang_has_the_series(metric, declared) -> None:
    assert metric.name in declared
    assert declared[metric.name] == (metric.kind, set(metric.labels))


def test_lists_by_process_are_right() -> None:
    """Tokenizer series are declared after `class TokenizerMetricsCollector`, HTTP ones elsewhere."""
    text = (source() / "metrics_collector.py").read_text()
    scheduler, tokenizer = text.split("class TokenizerMetricsCollector")
    tokenizer = tokenizer.split("\nclass ")[0]
    assert all(f'"sglang:{one.name}"' in scheduler for one in SCHEDULER)
    assert all(f'"sglang:{one.name}"' in tokenizer for one in TOKENIZER)
    assert all(f'"sglang:{one.name}"' not in text for one in HTTP)
    for label in (*RANKS, "dp_rank", "model_name", "priority"):
        assert f'"{label}"' in text


@pytest.mark.parametrize("bound", ["2", "0.1"])
def test_objectives_are_bucket_edges(bound) -> None:
    tree = ast.parse((source() / "metrics_collector.py").read_text())
    edges = {
        tuple(element.value for element in node.value.elts)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "")
        == ("bucket_time_to_first_token" if bound == "2" else "bucket_inter_token_latency")
        and isinstance(node.value, ast.List)
    }
    assert any(float(bound) in map(float, one) for one in edges)
