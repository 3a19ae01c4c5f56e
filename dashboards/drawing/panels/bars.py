"""Bar gauge (a bar per series) and bar chart (a group of bars per row of a table)."""

from collections.abc import Sequence

from dashboards.drawing import colors
from dashboards.drawing.canvas import FONT_PX, Box, text_width
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import NUMBER, Frame, as_number
from dashboards.drawing.panels import axis, legend
from dashboards.drawing.panels.stat import reduced
from dashboards.drawing.view import View, items

_ROW_PX, _NAME_PART, _VALUE_PX = 34, 0.45, 76


def draw_gauge(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    shown = items(panel, frames)
    values = [as_number(reduced(panel, item)) for item in shown]
    largest = max([value for value in values if value == value], default=1.0) or 1.0
    longest = max(text_width(item.name, FONT_PX) for item in shown) + 12
    name_px = min(box.width * _NAME_PART, longest)
    height = min(_ROW_PX, box.height / len(shown))
    for row, (item, value) in enumerate(zip(shown, values, strict=True)):
        line = box.inset(top=row * height, bottom=box.height - (row + 1) * height)
        line.text(name_px - 8, height / 2, box.cut(item.name, name_px - 8), align="right")
        track = line.inset(left=name_px, right=_VALUE_PX, top=height * 0.18, bottom=height * 0.18)
        track.fill(colors.PAGE)
        top = as_number(item.config.values.get("max")) if "max" in item.config.values else largest
        part = min(1.0, max(0.0, value / top)) if value == value else 0.0
        color = item.config.value_color(value, row)
        track.inset(right=track.width * (1 - part)).fill(color)
        text = item.config.text(value)
        line.text(box.width - _VALUE_PX + 8, height / 2, text, color=color, weight="bold")


def draw_chart(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    frame = frames[0]
    wanted = panel.options.get("xField")
    names = next((f for f in frame.fields if wanted in (f.display, f.name)), None)
    names = names or next(field for field in frame.fields if field.kind != NUMBER)
    shown = [item for item in items(panel, frames[:1]) if item.field is not names]
    box = legend.draw(box, panel, shown)
    axes = axis.plot_area(box, x_title=True, y_title=bool(shown[0].config.custom.get("axisLabel")))
    stacked = panel.options.get("stacking") in ("normal", "percent")
    width = 0.8 if stacked else 0.8 / len(shown)
    below = [0.0] * frame.rows
    for number, item in enumerate(shown):
        heights = [value if value == value else 0.0 for value in item.field.numbers()]
        shift = 0.0 if stacked else (number - (len(shown) - 1) / 2) * width
        places = [row + shift for row in range(frame.rows)]
        bars = axes.bar(places, heights, width * 0.94, below, color=item.color)
        if panel.options.get("showValue", "auto") != "never" and frame.rows * len(shown) <= 16:
            labels = [item.config.text(value) for value in heights]
            axes.bar_label(bars, labels, fontsize=8, label_type="center" if stacked else "edge")
        if stacked:
            below = [a + b for a, b in zip(below, heights, strict=True)]
    axis.value_axis(axes, shown[0].config)
    axes.set_xticks(range(frame.rows), [str(value) for value in names.values])
    axes.set_xlabel(names.display)
    axes.grid(visible=False, axis="x")
