"""Every metric that is named anywhere exists in what the real processes exposed.

The expositions are recorded: `python -m tests.support.record_exposition` renews them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dashboards.drawing.dashboard import load
from tests.support.metric_names import exposed, named_in
from tests.support.promql import names

REPOSITORY = Path(__file__).parents[3]
EXPOSITIONS = REPOSITORY / "tests" / "data" / "exposition"
BY_PROMETHEUS = {"up"}
"""Series that Prometheus itself makes of every target."""


def rules() -> list[dict]:
    files = sorted((REPOSITORY / "deploy" / "prometheus" / "rules").glob("*.yml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def known() -> set[str]:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    scraped = [exposed(file.read_text()) for file in EXPOSITIONS.glob("*.prom")]
    assert len(scraped) == 2
    return recorded.union(*scraped) | BY_PROMETHEUS


def unknown(expression: str, known: set[str]) -> list[str]:
    return [
        pattern
        for pattern in names(expression)
        if not any(re.fullmatch(pattern, name) for name in known)
    ]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_rules_and_alerts(rule: dict, known: set[str]) -> None:
    assert unknown(rule["expr"], known) == []


def expressions(file: Path) -> Iterator[str]:
    dashboard = load(file)
    for panel in dashboard.panels:
        yield from (target["expr"] for target in panel.json.get("targets") or [])
    yield from (one["expr"] for one in dashboard.annotations)
    for variable in dashboard.variables:
        query = variable.get("query")
        if isinstance(query, dict):
            yield re.sub(r"label_values\((.*),\s*\w+\)", r"\1", query["query"])


@pytest.mark.parametrize(
    "file", sorted((REPOSITORY / "dashboards" / "grafana").glob("*.json")), ids=lambda f: f.stem
)
def test_dashboards(file: Path, known: set[str]) -> None:
    found = [*expressions(file)]
    assert len(found) > 10
    assert sorted({name for one in found for name in unknown(one, known)}) == []


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda p: p.name)
def test_pages(page: Path, known: set[str]) -> None:
    assert sorted(named_in(page) - known) == []


def test_names_in_a_page_are_found() -> None:
    assert "jetspec_tree_budget" in named_in(REPOSITORY / "docs" / "operate.md")


def test_a_name_that_nothing_exposes_is_found(known: set[str]) -> None:
    """SGLang's own example dashboard asked for this one and showed nothing."""
    assert unknown("rate(sglang_num_running_reqs[5m])", known) == ["sglang_num_running_reqs"]
    assert unknown('{__name__=~"sglang[:_]no_such"}', known) == ["sglang[:_]no_such"]


def test_expositions_hold_no_secret_and_stay_small() -> None:
    for file in EXPOSITIONS.glob("*.prom"):
        text = file.read_text()
        assert len(text) < 60_000
        assert "/root" not in text
        assert json.dumps(text).isascii()
