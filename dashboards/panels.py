"""Panels over time and figures, with everything the linter asks for. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import (
    heatmap,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model

from dashboards.variables import PROMETHEUS

NO_VALUE = (
    "No data. Is the server scraped (up = 1), started with --enable-metrics, and under load in"
    " this time range? Does the selection above match anything? Are the recording rules loaded?"
)

SHORT_NO_VALUE = "No data: is the selection right, and is the server scraped?"

Override = dashboard.DynamicConfigValue


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; `legend` in Grafana's `{{label}}` form."""

    expr: str
    legend: str = ""


def with_queries(panel: Any, queries: Sequence[Query], kind: str) -> Any:
    for letter, query in zip(ascii_uppercase, queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(query.expr).datasource(PROMETHEUS)
        target = target.editor_mode(prometheus_model.QueryEditorMode.CODE)
        match kind:
            case "table":
                target = target.instant().format(prometheus_model.PromQueryFormat.TABLE)
            case "instant":
                target = target.instant()
            case "heatmap":
                target = target.range().format(prometheus_model.PromQueryFormat.HEATMAP)
            case _:
                target = target.range()
        panel = panel.with_target(target.legend_format(query.legend or "__auto"))
    return panel


def described(panel: Any, title: str, text: str, unit: str, span: int, height: int) -> Any:
    return (
        panel.title(title)
        .description(text)
        .datasource(PROMETHEUS)
        .unit(unit)
        .no_value(NO_VALUE)
        .span(span)
        .height(height)
    )


def _legend(values: Sequence[str] = ("mean", "max", "lastNotNull")) -> Any:
    return (
        build_common.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(list(values))
    )


def over_time(
    title: str,
    text: str,
    unit: str,
    *queries: Query,
    span: int = 12,
    height: int = 8,
    stacked: bool = False,
    step: bool = False,
    floor: float | None = 0,
    top: float | None = None,
    decimals: int | None = None,
) -> Any:
    """Lines over time. Gaps stay gaps: no data is not zero."""
    panel = described(timeseries.Panel(), title, text, unit, span, height)
    panel = with_queries(panel, queries, "range")
    panel = panel.legend(_legend()).line_width(1).span_nulls(False)
    panel = panel.show_points(common.VisibilityMode.AUTO)
    panel = panel.tooltip(
        build_common.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    if stacked:
        stacking = build_common.StackingConfig().mode(common.StackingMode.NORMAL)
        panel = panel.stacking(stacking).fill_opacity(40)
    if step:
        panel = panel.line_interpolation(common.LineInterpolation.STEP_AFTER)
    if floor is not None:
        panel = panel.min(floor)
    if top is not None:
        panel = panel.max(top)
    if decimals is not None:
        panel = panel.decimals(decimals)
    return panel


def right_axis(panel: Any, refs: str, unit: str, label: str, *, step: bool = True) -> Any:
    """Moves the queries `refs` (their letters) to an axis of their own on the right."""
    for ref in refs:
        properties = [
            Override(id_val="unit", value=unit),
            Override(id_val="custom.axisPlacement", value="right"),
            Override(id_val="custom.axisLabel", value=label),
            Override(id_val="custom.lineWidth", value=2),
        ]
        if step:
            properties.append(Override(id_val="custom.lineInterpolation", value="stepAfter"))
        panel = panel.override_by_query(ref, properties)
    return panel


def number(
    title: str,
    text: str,
    unit: str,
    *queries: Query,
    span: int = 4,
    height: int = 4,
    decimals: int | None = None,
    mappings: list[dashboard.ValueMapping] | None = None,
    steps: Sequence[tuple[float | None, str]] = ((None, "text"),),
    no_value: str = SHORT_NO_VALUE,
) -> Any:
    """Present values, with their history in the background."""
    panel = described(stat.Panel(), title, text, unit, span, height)
    panel = with_queries(panel, queries, "range")
    panel = (
        panel.graph_mode(common.BigValueGraphMode.AREA)
        .color_mode(common.BigValueColorMode.VALUE)
        .reduce_options(build_common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(steps))
    )
    if decimals is not None:
        panel = panel.decimals(decimals)
    if mappings is not None:
        panel = panel.mappings(mappings)
    return panel.no_value(no_value)


def states(
    title: str,
    text: str,
    *queries: Query,
    names: dict[int, tuple[str, str]],
    span: int = 12,
    height: int = 6,
) -> Any:
    """One band per series, coloured by its value; `names` says what each value means."""
    panel = described(statetimeline.Panel(), title, text, "short", span, height)
    panel = with_queries(panel, queries, "range")
    return panel.merge_values(True).mappings([meanings(names)])


def meanings(names: dict[int, tuple[str, str]]) -> dashboard.ValueMapping:
    """Values to words and colours."""
    return dashboard.ValueMap(
        options={
            str(number): dashboard.ValueMappingResult(text=word, color=color, index=place)
            for place, (number, (word, color)) in enumerate(names.items())
        }
    )


def buckets(
    title: str, text: str, unit: str, query: Query, *, span: int = 12, height: int = 8
) -> Any:
    """A histogram over time: rows are bucket edges, colour is observations."""
    panel = described(heatmap.Panel(), title, text, "short", span, height)
    panel = with_queries(panel, [query], "heatmap")
    return (
        panel.calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common.AxisPlacement.LEFT))
        .color(
            heatmap.HeatmapColorOptions()
            .mode(heatmap_model.HeatmapColorMode.SCHEME)
            .scheme("Spectral")
            .reverse(False)
            .steps(64)
        )
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .cell_gap(1)
        .show_legend()
    )


def row(title: str) -> Any:
    return build_dashboard.Row(title)


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> Any:
    return (
        build_dashboard.ThresholdsConfig()
        .mode(dashboard.ThresholdsMode.ABSOLUTE)
        .steps([dashboard.Threshold(value=value, color=color) for value, color in steps])
    )
