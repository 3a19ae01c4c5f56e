"""`draw`: one dashboard to one picture, on the dashboard's own grid.

I/O: queries to Prometheus, through `Queries`; writes the PNG.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from dashboards.drawing import colors, transformations
from dashboards.drawing.canvas import STYLE, Box, Canvas, text_width
from dashboards.drawing.dashboard import Dashboard, Panel
from dashboards.drawing.frames import Frame, from_results
from dashboards.drawing.panels import DRAW
from dashboards.drawing.prometheus import Prometheus, Result, Span
from dashboards.drawing.variables import Values, fill
from dashboards.drawing.view import Mark, View

COLUMNS, ROW_PX, GAP_PX, HEAD_PX, TITLE_PX = 24, 38, 8, 64, 30


@dataclass(slots=True)
class Drawn:
    """The content of a picture: its panels with queries, and those without data."""

    panels: int = 0
    empty: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Queries:
    """A dashboard's queries against one Prometheus, in one time range."""

    prometheus: Prometheus
    span: Span
    values: Values

    def frames(self, panel: Panel) -> list[Frame]:
        """The panel's data after its transformations."""
        found: list[Frame] = []
        for target in panel.targets:
            legend = fill(target.get("legendFormat") or "", self.values, self.span, title=True)
            found += from_results({**target, "legendFormat": legend}, self.results(target))
        return transformations.apply(found, panel.transformations)

    def results(self, target: Mapping[str, Any]) -> list[Result]:
        expression = fill(target["expr"], self.values, self.span)
        if target.get("instant") and not target.get("range"):
            return self.prometheus.instant(expression, self.span.end)
        return self.prometheus.range(expression, self.span)

    def marks(self, annotation: Mapping[str, Any]) -> list[Mark]:
        """The times at which an annotation's query is above zero."""
        expression = fill(annotation["expr"], self.values, self.span)
        color = colors.named(annotation.get("iconColor") or "blue")
        return [
            Mark(time, annotation.get("name", ""), color)
            for result in self.prometheus.range(expression, self.span)
            for time, value in result.points
            if value > 0
        ]


def draw(dashboard: Dashboard, queries: Queries, file: Path, width: int) -> Drawn:
    """Write the picture; which panels had no data."""
    with rc_context(STYLE):
        canvas = Canvas(width, HEAD_PX + dashboard.rows * ROW_PX + GAP_PX)
        marks = [mark for one in dashboard.annotations for mark in queries.marks(one)]
        view = View(queries.span, marks)
        _head(canvas, dashboard, queries)
        drawn = Drawn()
        column = (width - GAP_PX) / COLUMNS
        for panel in dashboard.panels:
            box = canvas.box(
                GAP_PX + panel.x * column,
                HEAD_PX + panel.y * ROW_PX,
                panel.width * column - GAP_PX,
                panel.height * ROW_PX - GAP_PX,
            )
            _panel(box, panel, queries, view, drawn)
        canvas.save(file)
    return drawn


def _head(canvas: Canvas, dashboard: Dashboard, queries: Queries) -> None:
    box = canvas.box(GAP_PX, 0, canvas.width - 2 * GAP_PX, HEAD_PX)
    box.text(4, 20, dashboard.title, px=18, weight="bold")
    x = 4.0
    for variable in dashboard.variables:
        if variable.get("hide") == 2 or variable["type"] == "datasource":
            continue
        name = variable.get("label") or variable["name"]
        words = f"{name}: {queries.values[variable['name']].in_title()}"
        box.text(x, 46, words, px=11, color=colors.WEAK_TEXT)
        x += text_width(words, 11) + 18
    box.text(box.width - 4, 20, _range(queries.span), px=11, color=colors.WEAK_TEXT, align="right")


def _range(span: Span) -> str:
    from datetime import datetime

    start, end = (datetime.fromtimestamp(time) for time in (span.start, span.end))
    return f"{start:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S}"


def _panel(box: Box, panel: Panel, queries: Queries, view: View, drawn: Drawn) -> None:
    title = fill(panel.title, queries.values, queries.span, title=True)
    if panel.type == "row":
        box.text(4, box.height / 2, f"▾ {title}", px=14, weight="bold")
        return
    bare = panel.json.get("transparent")
    if not bare:
        box.fill(colors.PANEL, colors.BORDER)
    shown = box.cut(title, box.width - 18, 13, "bold")
    box.text(10, TITLE_PX / 2 + 1, shown, px=13, weight="bold")
    inside = box.inset(8, TITLE_PX if title else 8, 8, 6)
    if panel.type == "text":
        DRAW["text"](inside, panel, [], view)
        return
    drawn.panels += 1
    frames = queries.frames(panel)
    if not _has_data(frames):
        drawn.empty.append(title)
        inside.text(
            inside.width / 2, inside.height / 2, "No data", color=colors.WEAK_TEXT, align="center"
        )
        return
    DRAW[panel.type](inside, panel, frames, view)


def _has_data(frames: Sequence[Frame]) -> bool:
    """Whether any number or text is there: an answer of NaN alone is none."""
    return any(
        value is not None and value == value
        for frame in frames
        for one in frame.fields
        if one.kind != "time"
        for value in one.values
    )
