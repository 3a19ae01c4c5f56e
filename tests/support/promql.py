"""PromQL of dashboards and rules, read with a parser: which series it selects, and how."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import promql_parser

GRAFANA = Path(__file__).parents[2] / "dashboards" / "grafana"
INTERVALS = {"__rate_interval": "1m", "__range": "30m", "__interval": "15s"}


@dataclass(frozen=True, slots=True)
class Selected:
    """One selector: its metric's name, its matchers, and the functions around it, inmost first."""

    name: str
    matchers: dict[str, tuple[str, str]]
    around: tuple[str, ...]
    ranged: bool


def substituted(expr: str, values: dict[str, str] | None = None) -> str:
    """A query as Grafana would send it: intervals, then `values`, any other variable as `.+`."""
    known = {**INTERVALS, **(values or {})}
    return re.sub(
        r"\$(?:\{(\w+)\}|(\w+))", lambda found: known.get(found[1] or found[2], ".+"), expr
    )


def selected(expr: str) -> list[Selected]:
    """Every selector of a query; raises ValueError where the query does not parse."""
    return list(_walk(promql_parser.parse(substituted(expr)), ()))


def names(expr: str) -> set[str]:
    return {selector.name for selector in selected(expr)}


def dashboards() -> dict[str, dict]:
    """The committed dashboards by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}


def panels(dashboard: dict) -> list[dict]:
    """Its panels, rows left out."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict) -> list[tuple[str, str]]:
    """Every query of a dashboard with where it stands: panels, then annotations."""
    queries = [
        (f"{panel['title']} {target['refId']}", target["expr"])
        for panel in panels(dashboard)
        for target in panel["targets"]
    ]
    return queries + [(one["name"], one["expr"]) for one in dashboard["annotations"]["list"]]


def _walk(node: promql_parser.Expr, around: tuple[str, ...]) -> Iterator[Selected]:
    match node:
        case promql_parser.MatrixSelector():
            yield _selector(node.vector_selector, around, ranged=True)
        case promql_parser.VectorSelector():
            yield _selector(node, around, ranged=False)
        case promql_parser.Call():
            for argument in node.args:
                yield from _walk(argument, (node.func.name, *around))
        case promql_parser.AggregateExpr():
            yield from _walk(node.expr, (str(node.op), *around))
        case promql_parser.BinaryExpr():
            yield from _walk(node.lhs, around)
            yield from _walk(node.rhs, around)
        case promql_parser.ParenExpr() | promql_parser.UnaryExpr() | promql_parser.SubqueryExpr():
            yield from _walk(node.expr, around)


def _selector(
    node: promql_parser.VectorSelector, around: tuple[str, ...], *, ranged: bool
) -> Selected:
    matchers = {
        one.name: (str(one.op).removeprefix("MatchOp."), one.value)
        for one in node.matchers.matchers
    }
    name = node.name or matchers["__name__"][1]
    return Selected(name, matchers, around, ranged)
