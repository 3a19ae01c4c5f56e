"""The rules of Grafana's dashboard-linter, and a few of our own, on the committed dashboards."""

from __future__ import annotations

import itertools
import re

import pytest

from dashboards.frame import CONTROLLER, TITLES, TPS
from dashboards.panels import NO_VALUE
from tests.support.promql import dashboards, expressions, panels, selected

DASHBOARDS = dashboards()
EVERY_DASHBOARD = pytest.mark.parametrize("name", DASHBOARDS)
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in panels(dashboard)
]
EVERY_PANEL = pytest.mark.parametrize("panel", PANELS)
QUERIES = [
    pytest.param(expr, id=f"{name}: {place}")
    for name, dashboard in DASHBOARDS.items()
    for place, expr in expressions(dashboard)
]
EVERY_QUERY = pytest.mark.parametrize("expr", QUERIES)


def variables(dashboard: dict) -> dict[str, dict]:
    return {variable["name"]: variable for variable in dashboard["templating"]["list"]}


@EVERY_DASHBOARD
def test_identity(name) -> None:
    dashboard = DASHBOARDS[name]
    assert name == f"{dashboard['uid']}.json"
    assert dashboard["title"] == TITLES[dashboard["uid"]]
    assert dashboard["description"]
    assert dashboard["editable"] is False
    assert dashboard["tags"] == ["jetspec"]


@EVERY_DASHBOARD
def test_variables(name) -> None:
    dashboard = DASHBOARDS[name]
    found = variables(dashboard)
    wanted = ["datasource", "job", "instance"]
    wanted += ["target"] if dashboard["uid"] == CONTROLLER else ["model"]
    assert list(found)[: len(wanted)] == wanted
    assert ("budget" in found) == (dashboard["uid"] == TPS)
    assert found["datasource"]["type"] == "datasource"
    assert found["datasource"]["query"] == "prometheus"
    for variable in found.values():
        assert variable["label"]
        assert variable["description"].endswith(".") or variable["description"].endswith(").")
        if variable["type"] == "query":
            assert variable["refresh"] == 2, "on time range change"
            assert variable["multi"]
            assert variable["includeAll"]
            assert variable["allValue"] == ".+"
            assert variable["datasource"]["uid"] == "${datasource}"
            assert re.fullmatch(r"label_values\(.+, \w+\)", variable["query"]["query"])


@EVERY_DASHBOARD
def test_links_lead_to_the_other_dashboards(name) -> None:
    dashboard = DASHBOARDS[name]
    linked = {re.match(r"/d/([\w-]+)", link["url"])[1] for link in dashboard["links"]}
    assert linked == {other for other in TITLES if other != dashboard["uid"]}
    for link in dashboard["links"]:
        assert link["keepTime"]
        # `job` is the servers' on two dashboards and the controller's on the third.
        crosses = CONTROLLER in (dashboard["uid"], re.match(r"/d/([\w-]+)", link["url"])[1])
        assert link["includeVars"] is not crosses


@EVERY_DASHBOARD
def test_panels_have_ids_and_do_not_overlap(name) -> None:
    dashboard = DASHBOARDS[name]
    everything = dashboard["panels"]
    assert [panel["id"] for panel in everything] == list(range(1, len(everything) + 1))
    taken: dict[tuple[int, int], int] = {}
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
        for cell in cells:
            assert taken.setdefault(cell, panel["id"]) == panel["id"]


@EVERY_DASHBOARD
def test_titles_are_unique(name) -> None:
    titles = [panel["title"] for panel in DASHBOARDS[name]["panels"]]
    assert len(set(titles)) == len(titles)


@EVERY_PANEL
def test_panel_is_explained(panel) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["noValue"] == NO_VALUE or defaults["noValue"].startswith("No ")
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@EVERY_PANEL
def test_panel_has_targets_with_ref_ids(panel) -> None:
    refs = [target["refId"] for target in panel["targets"]]
    assert refs
    assert refs == sorted(set(refs))
    for target in panel["targets"]:
        assert target["expr"]
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@EVERY_QUERY
def test_query_parses_and_selects(expr) -> None:
    assert selected(expr)


@EVERY_QUERY
def test_query_uses_the_job_and_instance_variables(expr) -> None:
    for selector in selected(expr):
        if selector.name == "jetspec_controller_decisions_total":
            # The marks on the servers' dashboard come from the controller's job.
            assert {"job", "target"} & set(selector.matchers)
        else:
            assert {"job", "instance"} <= set(selector.matchers)
    assert 'job="$job"' not in expr
    assert 'instance="$instance"' not in expr


@EVERY_QUERY
def test_query_uses_only_variables_that_exist(expr, request) -> None:
    dashboard = DASHBOARDS[request.node.callspec.id.split(": ")[0]]
    known = {*variables(dashboard), "__rate_interval", "__range"}
    assert {a or b for a, b in re.findall(r"\$(?:\{(\w+)\}|(\w+))", expr)} <= known


@EVERY_PANEL
def test_rates_use_the_rate_interval(panel) -> None:
    """`$__rate_interval` in a query over time, `$__range` in one figure for the whole range; a
    fixed window only where the title or description names it."""
    for target in panel["targets"]:
        bare = re.sub(r'"[^"]*"', "", target["expr"])
        for window in re.findall(r"\[([^\]]+)\]", bare):
            if target.get("instant"):
                assert window == "$__range"
            elif window != "$__rate_interval":
                assert window == "1h"
                assert re.search("(in an|per) hour", panel["description"])


@EVERY_PANEL
def test_legends_name_labels_of_the_result(panel) -> None:
    for target in panel["targets"]:
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.match(r"(?:60 \* |time\(\) - )?\w+ by \(([^)]*)\)", target["expr"])
        if grouped:
            assert shown <= set(grouped[1].split(", "))


@EVERY_DASHBOARD
def test_every_letter_is_a_query(name) -> None:
    """Overrides by query name a query that exists."""
    for panel in panels(DASHBOARDS[name]):
        refs = {target["refId"] for target in panel["targets"]}
        for override in panel["fieldConfig"]["overrides"]:
            if override["matcher"]["id"] == "byFrameRefID":
                assert override["matcher"]["options"] in refs


@EVERY_PANEL
def test_transformations_name_fields_of_the_result(panel) -> None:
    """An XY chart or a matrix reads a table; each field it names is a label of the query."""
    if not panel.get("transformations"):
        return
    (target,) = panel["targets"]
    assert target["format"] == "table"
    assert target["instant"]
    labels = set(re.findall(r'"(edge)"', target["expr"]))
    for by in re.findall(r"(?:sum|max) by \(([^)]*)\)", target["expr"]):
        labels |= set(by.split(", "))
    renamed: dict[str, str] = {}
    for change in panel["transformations"]:
        options = change["options"]
        match change["id"]:
            case "convertFieldType":
                fields = {one["targetField"] for one in options["conversions"]}
                fields -= {"batch\\budget"}
            case "sortBy":
                fields = {one["field"] for one in options["sort"]} - {"batch\\budget"}
            case "organize":
                renamed = options["renameByName"]
                fields = set(renamed) - {"Value"}
            case "partitionByValues":
                fields = set(options["fields"])
            case "groupingToMatrix":
                fields = {options["columnField"], options["rowField"]}
        assert fields <= labels, change
    for override in panel["fieldConfig"]["overrides"]:
        field = override["matcher"]["options"]
        assert field in {*renamed.values(), *labels, "batch\\budget"}
