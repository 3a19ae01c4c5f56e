"""The steps between a query and a picture: variables, units, frames, transformations, settings."""

from __future__ import annotations

import math

import pytest

from dashboards.drawing import transformations, units
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.fields import config
from dashboards.drawing.frames import Field, Frame, from_results
from dashboards.drawing.page import Queries
from dashboards.drawing.prometheus import Prometheus, Result, Span
from dashboards.drawing.variables import Chosen, fill, resolve

SPAN = Span(0.0, 600.0, 5.0)


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0.0, "short", None, "0"),
        (12345.0, "short", None, "12.3 K"),
        (1234567.0, "short", 1, "1.2 Mil"),
        (0.36, "s", None, "360 ms"),
        (0.36, "s", 2, "360.00 ms"),
        (90.0, "s", None, "1.5 min"),
        (-0.002, "s", None, "-2 ms"),
        (0.9567, "percentunit", None, "95.7%"),
        (12.0, "percent", 0, "12%"),
        (1500.0, "reqps", None, "1.5K req/s"),
        (3.0, "cpm", None, "3 c/m"),
        (2048.0, "bytes", None, "2 KiB"),
        (1.5, "decgbytes", None, "1.5 GB"),
        (5.0, "suffix: tok/s", None, "5 tok/s"),
        (5.0, "tok/s", None, "5 tok/s"),
        (1.0, "bool_yes_no", None, "Yes"),
        (1000.0, None, None, "1000"),
        (math.nan, "s", None, "-"),
        (None, "s", None, "-"),
        (math.inf, "s", None, "+Inf"),
        ("text", "s", None, "text"),
    ],
)
def test_units(value, unit, decimals, text):
    assert units.text(value, unit, decimals) == text


def test_variables_go_into_queries_as_grafana_puts_them():
    values = {
        "instance": Chosen(["127.0.0.1:1", "h:2"], many=True),
        "one": Chosen(["a.b"], many=True),
        "plain": Chosen(["0.5"]),
        "all": Chosen(["x", "y"], many=True, pattern=".+"),
    }
    assert fill('x{i=~"$instance"}', values, SPAN) == r'x{i=~"(127\\.0\\.0\\.1:1|h:2)"}'
    assert fill('x{i=~"${one}"}', values, SPAN) == r'x{i=~"a\\.b"}'
    assert fill("le=$plain", values, SPAN) == "le=0.5"
    assert fill('x{i=~"${all}"}', values, SPAN) == 'x{i=~".+"}'
    assert fill("${instance:csv} $unknown", values, SPAN) == "127.0.0.1:1,h:2 $unknown"
    assert fill("$instance, $all", values, SPAN, title=True) == "127.0.0.1:1 + h:2, All"


def test_variables_go_into_legends(prometheus):
    prometheus.answer = lambda expression: [({"job": "a"}, 1.0)]
    target = {"expr": "x", "refId": "A", "legendFormat": "{{job}} within ${bound} s"}
    queries = Queries(Prometheus(prometheus.url), SPAN, {"bound": Chosen(["0.5"])})
    frames = queries.frames(Panel({"type": "timeseries", "targets": [target]}, 0, 0, 1, 1))
    assert [frame.fields[1].display for frame in frames] == ["a within 0.5 s"]


def test_grafanas_own_variables():
    """$__rate_interval is at least four scrapes, and a step plus a scrape."""
    assert fill("[$__rate_interval] [$__range]", {}, SPAN) == "[20s] [600s]"
    assert fill("[$__rate_interval]", {}, Span(0, 36000, 120)) == "[125s]"
    assert fill("$__interval ${__interval_ms}", {}, SPAN) == "5s 5000"


def test_variables_that_depend_on_each_other(prometheus):
    prometheus.labels = {"job": ["sglang"], "budget": ["16", "4", "8"]}
    variables = [
        {"type": "datasource", "name": "datasource"},
        {
            "type": "query",
            "name": "job",
            "query": {"query": "label_values(up, job)"},
            "multi": True,
        },
        {
            "type": "query",
            "name": "budget",
            "query": {"query": 'label_values(x{job=~"$job"}, budget)'},
            "includeAll": True,
            "allValue": ".+",
            "current": {"value": "$__all"},
        },
        {"type": "custom", "name": "bound", "query": "1,2", "current": {"value": "2"}},
    ]
    found = resolve(variables, Prometheus(prometheus.url), SPAN, {})
    assert found["job"].values == ["sglang"]
    assert found["budget"].values == ["4", "8", "16"]
    assert found["budget"].in_query(None) == ".+"
    assert found["bound"].in_query(None) == "2"
    chosen = resolve(variables, Prometheus(prometheus.url), SPAN, {"budget": ["4", "16"]})
    assert chosen["budget"].in_query(None) == "(4|16)"


def results(**by_le: float) -> list[Result]:
    return [Result({"le": le.removeprefix("b")}, [(1.0, value)]) for le, value in by_le.items()]


def test_buckets_are_told_apart():
    frames = from_results({"format": "heatmap"}, results(b4=5.0, b2=3.0, b8=5.0))
    assert [(f.fields[1].display, f.fields[1].values) for f in frames] == [
        ("2", [3.0]),
        ("4", [2.0]),
        ("8", [0.0]),
    ]


def test_names_of_series():
    result = Result({"__name__": "up", "job": "a", "instance": "b"}, [(1.0, 1.0)])
    names = {
        form: from_results({"legendFormat": form}, [result])[0].fields[1].display
        for form in ("{{job}} at {{ instance }}", "{{none}}", "__auto")
    }
    assert names["{{job}} at {{ instance }}"] == "a at b"
    assert names["__auto"] == 'up{job="a", instance="b"}'


def table(**columns: list) -> Frame:
    fields = [
        Field(name, "number" if isinstance(values[0], float) else "string", values, {})
        for name, values in columns.items()
    ]
    return Frame("A", fields)


def columns(frame: Frame) -> dict[str, list]:
    return {field.display: field.values for field in frame.fields}


def test_the_matrix_of_batch_and_budget():
    frame = table(batch=["2", "1", "2"], budget=["8", "4", "4"], Value=[1.0, 2.0, 3.0])
    conversions = [
        {"targetField": name, "destinationType": "number"} for name in ("batch", "budget")
    ]
    corner = "batch\\budget"
    matrix = {"columnField": "budget", "rowField": "batch", "valueField": "Value"}
    [made] = transformations.apply(
        [frame],
        [
            {"id": "convertFieldType", "options": {"conversions": conversions}},
            {"id": "sortBy", "options": {"sort": [{"field": "budget", "desc": False}]}},
            {"id": "groupingToMatrix", "options": matrix},
            {"id": "sortBy", "options": {"sort": [{"field": corner}]}},
        ],
    )
    assert columns(made) == {corner: [1.0, 2.0], "4": [2.0, 3.0], "8": [None, 1.0]}


def test_partitions_and_order():
    frame = table(model=["a", "b", "a"], x=["1", "2", "3"], Value=[1.0, 2.0, 3.0])
    made = transformations.apply(
        [frame],
        [
            {"id": "partitionByValues", "options": {"fields": ["model"], "keepFields": False}},
            {
                "id": "organize",
                "options": {"renameByName": {"Value": "v"}, "indexByName": {"Value": 0, "x": 1}},
            },
            {"id": "reduce", "disabled": True},
        ],
    )
    assert [columns(one) for one in made] == [
        {"v": [1.0, 3.0], "x": ["1", "3"]},
        {"v": [2.0], "x": ["2"]},
    ]
    assert made[0].fields[0].labels == {"model": "a"}


def test_overrides_and_mappings():
    json = {
        "type": "stat",
        "fieldConfig": {
            "defaults": {
                "unit": "s",
                "thresholds": {"steps": [{"color": "green"}, {"value": 5, "color": "red"}]},
                "mappings": [
                    {"type": "value", "options": {"1": {"text": "yes", "color": "dark-blue"}}},
                    {"type": "range", "options": {"from": 7, "result": {"text": "high"}}},
                ],
            },
            "overrides": [
                {
                    "matcher": {"id": "byFrameRefID", "options": "B"},
                    "properties": [
                        {"id": "unit", "value": "short"},
                        {"id": "custom.axisPlacement", "value": "right"},
                    ],
                }
            ],
        },
    }
    panel, field = Panel(json, 0, 0, 1, 1), Field("v", "number", [1.0], {})
    first, second = (config(panel, Frame(ref, [field]), field) for ref in "AB")
    assert (first.unit, second.unit) == ("s", "short")
    assert second.custom["axisPlacement"] == "right"
    assert [first.text(value) for value in (1.0, 2.0, 8.0)] == ["yes", "2 s", "high"]
    assert first.value_color(1.0) != first.value_color(2.0) != first.value_color(6.0)
