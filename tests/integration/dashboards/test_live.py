"""Every expression of dashboards, rules and alerts against a real Prometheus under real load.

One load for all: Prometheus with the repository's own configuration scrapes the server and the
controller of `jetspec serve`; then each query is asked through its API and must bring data. None is
left out: the host exposes the series of CUDA graphs too, and the load brings about retractions, an
aborted request, drift and a list of targets that cannot be read.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboards.drawing.dashboard import load
from dashboards.drawing.page import Queries
from dashboards.drawing.prometheus import Prometheus, Result, Span
from dashboards.drawing.variables import SCRAPE_S, resolve
from tests.support.live import SCRAPES_S, Watched, drive, watched
from tests.support.prompts import texts
from tests.support.promql import names
from tests.support.served import Served

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]
DASHBOARDS = sorted((REPOSITORY / "dashboards" / "grafana").glob("*.json"))


@dataclass(frozen=True, slots=True)
class Seen:
    """A Prometheus that saw the load, and the time in which it ran."""

    live: Watched
    prometheus: Prometheus
    span: Span


@pytest.fixture(scope="module")
def seen(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed; apt-get install prometheus")
    with watched(served, tmp_path_factory.mktemp("watched")) as live:
        drive(live, texts(16))
        time.sleep(SCRAPES_S)
        span = Span(live.since, time.time(), SCRAPE_S)
        yield Seen(live, Prometheus(live.prometheus), span)


def has_data(results: list[Result]) -> bool:
    return any(not math.isnan(value) for result in results for _, value in result.points)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_and_annotation_returns_data(seen: Seen, file: Path) -> None:
    dashboard = load(file)
    values = resolve(dashboard.variables, seen.prometheus, seen.span, {})
    queries = Queries(seen.prometheus, seen.span, values)
    empty = [
        f"{panel.title}: {target['expr']}"
        for panel in dashboard.panels
        for target in panel.targets
        if not has_data(queries.results(target))
    ]
    empty += [one["name"] for one in dashboard.annotations if not queries.marks(one)]
    assert empty == []


def test_every_recording_rule_is_healthy_and_returns_data(seen: Seen) -> None:
    rules = [rule for rule in seen.prometheus.rules() if rule["type"] == "recording"]
    assert len(rules) > 20
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    recorded = {rule["name"] for rule in rules}
    empty = [n for n in sorted(recorded) if not has_data(seen.prometheus.range(n, seen.span))]
    assert empty == []


def test_every_alert_evaluates_over_series_that_exist(seen: Seen) -> None:
    """Few alerts fire under a healthy load; what they look at must be there all the same."""
    alerts = [rule for rule in seen.prometheus.rules() if rule["type"] == "alerting"]
    assert len(alerts) > 5
    assert [
        (rule["name"], rule.get("lastError")) for rule in alerts if rule["health"] != "ok"
    ] == []
    missing = {
        f"{rule['name']}: {pattern}"
        for rule in alerts
        for pattern in names(rule["query"])
        if not has_data(seen.prometheus.range(f'count({{__name__=~"{pattern}"}})', seen.span))
    }
    assert missing == set()


def test_both_targets_were_up_all_the_time(seen: Seen) -> None:
    results = seen.prometheus.range("up", seen.span)
    assert {result.labels["job"] for result in results} == {"sglang", "jetspec-controller"}
    assert {value for result in results for _, value in result.points} == {1.0}


def test_preview_draws_every_dashboard(seen: Seen, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(REPOSITORY / "dashboards" / "preview.py"),
        "--out",
        str(tmp_path),
    ]
    command += ["--prometheus", seen.live.prometheus, "--from", str(seen.span.start)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for file in DASHBOARDS:
        picture = tmp_path / f"{json.loads(file.read_text())['uid']}.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(done.stdout.splitlines()) == len(DASHBOARDS)
