"""Panels with everything the linter asks for: title, description, unit, data source, ref ids. No I/O.

Transformations used (a previewer needs no others): `convertFieldType`, `sortBy`, `organize`,
`partitionByValues`, `groupingToMatrix`.
"""

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
    table,
    timeseries,
    xychart,
)
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models import prometheus as prometheus_model
from grafana_foundation_sdk.models import xychart as xychart_model

from dashboards.variables import PROMETHEUS

NO_VALUE = (
    "No data. Is the server scraped (up = 1), started with --enable-metrics, and under load in"
    " this time range? Does the selection above match anything? Are the recording rules loaded?"
)

Override = dashboard.DynamicConfigValue


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel; `legend` in Grafana's `{{label}}` form."""

    expr: str
    legend: str = ""


def _targets(panel: Any, queries: Sequence[Query], kind: str) -> Any:
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


def _common(panel: Any, title: str, text: str, unit: str, span: int, height: int) -> Any:
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
    panel = _common(timeseries.Panel(), title, text, unit, span, height)
    panel = _targets(panel, queries, "range")
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
    no_value: str | None = None,
) -> Any:
    """Figures of the present, with their course behind them."""
    panel = _common(stat.Panel(), title, text, unit, span, height)
    panel = _targets(panel, queries, "range")
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
    return panel if no_value is None else panel.no_value(no_value)


def states(
    title: str,
    text: str,
    *queries: Query,
    names: dict[int, tuple[str, str]],
    span: int = 12,
    height: int = 6,
) -> Any:
    """A band a series, coloured by its value; `names` says what each value means."""
    panel = _common(statetimeline.Panel(), title, text, "short", span, height)
    panel = _targets(panel, queries, "range")
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
    panel = _common(heatmap.Panel(), title, text, "short", span, height)
    panel = _targets(panel, [query], "heatmap")
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


def curve(
    title: str,
    text: str,
    unit: str,
    query: Query,
    *,
    x: str,
    x_label: str,
    y: str,
    split: str | None = "model_name",
    span: int = 12,
    height: int = 9,
) -> Any:
    """An XY chart: label `x` of the result as a number on a logarithmic axis, the value on the
    other, one line for each value of the label `split`.
    """
    panel = _common(xychart.Panel(), title, text, unit, span, height)
    panel = _targets(panel, [query], "table")
    for change in _table_of_numbers([x], {x: x_label, "Value": y}):
        panel = panel.with_transformation(change)
    if split is not None:
        panel = panel.with_transformation(
            dashboard.DataTransformerConfig(
                id_val="partitionByValues",
                options={"fields": [split], "keepFields": False, "naming": {"asLabels": True}},
            )
        )
    panel = panel.override_by_name(
        x_label,
        [
            Override(id_val="unit", value="short"),
            Override(id_val="custom.axisLabel", value=x_label),
            Override(id_val="custom.scaleDistribution", value={"type": "log", "log": 2}),
            Override(id_val="min", value=1),  # a logarithmic axis has no zero
        ],
    )
    return (
        panel.mapping(xychart_model.SeriesMapping.AUTO)
        .series([])
        .show(xychart_model.XYShowMode.POINTS_AND_LINES)
        .point_size(xychart.XychartFieldConfigPointSize().fixed(8))
        .line_width(2)
        .axis_label(y)
        .legend(
            build_common.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(build_common.VizTooltipOptions().mode(common.TooltipDisplayMode.SINGLE))
        .min(0)
    )


def matrix(
    title: str,
    text: str,
    unit: str,
    query: Query,
    *,
    rows: str,
    columns: str,
    span: int = 12,
    height: int = 9,
    decimals: int = 1,
) -> Any:
    """A map of two labels: a row for each value of `rows`, a column for each of `columns`, cells
    coloured by value."""
    panel = _common(table.Panel(), title, text, unit, span, height)
    panel = _targets(panel, [query], "table")
    for change in _table_of_numbers([columns, rows], {}):
        panel = panel.with_transformation(change)
    corner = f"{rows}\\{columns}"
    panel = panel.with_transformation(
        dashboard.DataTransformerConfig(
            id_val="groupingToMatrix",
            options={
                "columnField": columns,
                "rowField": rows,
                "valueField": "Value",
                "emptyValue": "null",
            },
        )
    ).with_transformation(_sorted(corner))
    # The row's label as text: as a number it would count for the range of the colours.
    panel = panel.with_transformation(_converted({corner: "string"}))
    return (
        panel.cell_options(
            common.TableColoredBackgroundCellOptions(
                mode=common.TableCellBackgroundDisplayMode.BASIC
            )
        )
        .color_scheme(
            build_dashboard.FieldColor().mode(dashboard.FieldColorModeId.CONTINUOUS_BL_YL_RD)
        )
        .decimals(decimals)
        .override_by_name(
            corner,
            [
                Override(id_val="custom.cellOptions", value={"type": "auto"}),
                Override(id_val="unit", value="short"),
                Override(id_val="decimals", value=0),
            ],
        )
    )


def labels_table(
    title: str, text: str, query: Query, columns: dict[str, str], *, span: int, height: int
) -> Any:
    """What the labels of an info series say, one line a series."""
    panel = _common(table.Panel(), title, text, "short", span, height)
    panel = _targets(panel, [query], "table")
    return panel.with_transformation(_organized(columns, {"Time": True, "Value": True}))


def row(title: str) -> Any:
    return build_dashboard.Row(title)


def _table_of_numbers(labels: list[str], names: dict[str, str]) -> list[Any]:
    changes = [
        _converted(dict.fromkeys(labels, "number")),
        _sorted(labels[0]),
    ]
    if names:
        changes.append(_organized(names, {"Time": True}))
    return changes


def _converted(kinds: dict[str, str]) -> Any:
    conversions = [{"targetField": f, "destinationType": kind} for f, kind in kinds.items()]
    return dashboard.DataTransformerConfig(
        id_val="convertFieldType", options={"conversions": conversions, "fields": {}}
    )


def _sorted(field: str) -> Any:
    return dashboard.DataTransformerConfig(
        id_val="sortBy", options={"fields": {}, "sort": [{"field": field, "desc": False}]}
    )


def _organized(names: dict[str, str], hidden: dict[str, bool]) -> Any:
    return dashboard.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": hidden,
            "indexByName": {name: place for place, name in enumerate(names)},
            "renameByName": names,
        },
    )


def _thresholds(steps: Sequence[tuple[float | None, str]]) -> Any:
    return (
        build_dashboard.ThresholdsConfig()
        .mode(dashboard.ThresholdsMode.ABSOLUTE)
        .steps([dashboard.Threshold(value=value, color=color) for value, color in steps])
    )
