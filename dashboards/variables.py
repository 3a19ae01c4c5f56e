"""Variables, links and annotations that the dashboards share. No I/O.

Variables are refreshed when the time range changes. `All` is the regular expression `.+`, so that
a selection with nothing in it stays a valid query.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

PROMETHEUS = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "jetspec"


def datasource() -> build.DatasourceVariable:
    return (
        build.DatasourceVariable("datasource")
        .label("Data source")
        .description("The Prometheus that scrapes the servers and holds JetSpec's recording rules.")
        .type("prometheus")
    )


def choice(
    name: str, label: str, source: str, of: str, description: str, *, numeric: bool = False
) -> build.QueryVariable:
    """A multiple choice among the values of label `of` in the series `source`."""
    order = model.VariableSort.NUMERICAL_ASC if numeric else model.VariableSort.ALPHABETICAL_ASC
    return (
        build.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(PROMETHEUS)
        .query({"query": f"label_values({source}, {of})", "refId": f"variable-{name}"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(order)
        .multi(True)
        .include_all(True)
        .all_value(".+")
        .current(model.VariableOption(text="All", value="$__all", selected=True))
    )


def one_of(name: str, label: str, values: list[str], default: str, text: str) -> Any:
    """A single choice among fixed values."""
    options = [model.VariableOption(text=v, value=v, selected=v == default) for v in values]
    return (
        build.CustomVariable(name)
        .label(label)
        .description(text)
        .values(",".join(values))
        .options(options)
        .current(model.VariableOption(text=default, value=default, selected=True))
    )


def link(title: str, uid: str, tooltip: str, *, same_servers: bool) -> build.DashboardLink:
    """A link to another of the dashboards that takes the time range along; the variables too if
    `job` and `instance` mean the same there, else only the data source."""
    return (
        build.DashboardLink(title)
        .type(model.DashboardLinkType.LINK)
        .icon("dashboard")
        .tooltip(tooltip)
        .url(f"/d/{uid}" if same_servers else f"/d/{uid}?${{datasource:queryparam}}")
        .include_vars(same_servers)
        .keep_time(True)
    )


class Annotation(Builder[model.AnnotationQuery]):
    """A mark on the time axis wherever a query is above 0."""

    def __init__(self, name: str, expr: str, color: str, title: str, text: str) -> None:
        self._made = _PrometheusAnnotation(
            name=name, datasource=PROMETHEUS, enable=True, icon_color=color, expr=expr
        )
        self._made.shown = {"titleFormat": title, "textFormat": text}

    def build(self) -> model.AnnotationQuery:
        return self._made


class _PrometheusAnnotation(model.AnnotationQuery):
    """The SDK's class lacks the fields of this data source."""

    shown: dict[str, str]

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **self.shown, "step": "10s", "useValueForTime": False}
