"""Panels that read a table: XY charts, maps of two labels, info series. No I/O.

Transformations used (a previewer needs no others): `convertFieldType`, `sortBy`, `organize`,
`partitionByValues`, `groupingToMatrix`.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import common as build_common
from grafana_foundation_sdk.builders import dashboard as build_dashboard
from grafana_foundation_sdk.builders import table, xychart
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import xychart as xychart_model

from dashboards.panels import Override, Query, described, with_queries


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
    panel = described(xychart.Panel(), title, text, unit, span, height)
    panel = with_queries(panel, [query], "table")
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
    panel = described(table.Panel(), title, text, unit, span, height)
    panel = with_queries(panel, [query], "table")
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
    )
    # Back to text after sorting, or the rows' names would stretch the cells' colour scale.
    for change in (_sorted(corner), _converted([corner], "string")):
        panel = panel.with_transformation(change)
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
            ],
        )
    )


def labels_table(
    title: str, text: str, query: Query, columns: dict[str, str], *, span: int, height: int
) -> Any:
    """The labels of an info series, one line per series."""
    panel = described(table.Panel(), title, text, "short", span, height)
    panel = with_queries(panel, [query], "table")
    return panel.with_transformation(_organized(columns, {"Time": True, "Value": True}))


def _table_of_numbers(labels: list[str], names: dict[str, str]) -> list[Any]:
    changes = [_converted(labels, "number"), _sorted(labels[0])]
    if names:
        changes.append(_organized(names, {"Time": True}))
    return changes


def _converted(fields: list[str], kind: str) -> Any:
    conversions = [{"targetField": field, "destinationType": kind} for field in fields]
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
