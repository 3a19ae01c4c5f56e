"""One module per panel type. Each has `draw(box, panel, frames, view)`; `DRAW` finds it by type."""

from collections.abc import Callable, Sequence

from dashboards.drawing.canvas import Box
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import Frame
from dashboards.drawing.panels import (
    bars,
    heatmap,
    stat,
    statetimeline,
    table,
    text,
    timeseries,
    xychart,
)
from dashboards.drawing.view import View

Draw = Callable[[Box, Panel, Sequence[Frame], View], None]

DRAW: dict[str, Draw] = {
    "barchart": bars.draw_chart,
    "bargauge": bars.draw_gauge,
    "heatmap": heatmap.draw,
    "stat": stat.draw,
    "state-timeline": statetimeline.draw,
    "table": table.draw,
    "text": text.draw,
    "timeseries": timeseries.draw,
    "xychart": xychart.draw,
}
