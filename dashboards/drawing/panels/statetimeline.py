"""State timeline: a row per series, its value in time as coloured stretches."""

from collections.abc import Iterator, Sequence

from dashboards.drawing import colors
from dashboards.drawing.canvas import Box, points, text_width
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import Frame
from dashboards.drawing.panels import axis
from dashboards.drawing.view import Item, View, items

_FONT_PX = 11


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    rows = items(panel, frames)
    names_px = min(box.width * 0.3, max(text_width(item.name, _FONT_PX) for item in rows))
    axes = box.inset(
        left=names_px + 8, top=axis.TOP_PX, right=axis.RIGHT_PX, bottom=axis.BOTTOM_PX
    ).axes()
    axes.grid(visible=False)
    axis.time_axis(axes, view.span)
    per_pixel = axes.get_window_extent().width / view.span.seconds
    height = panel.options.get("rowHeight", 0.9)
    for row, item in enumerate(rows):
        place = len(rows) - 1 - row
        for start, end, value in _stretches(item, view):
            color = item.config.value_color(value, row)
            axes.broken_barh(
                [(start, end - start)], (place + (1 - height) / 2, height), color=color
            )
            words = item.config.text(value)
            if panel.options.get("showValue", "auto") != "never" and (
                text_width(words, _FONT_PX) + 8 < (end - start) * per_pixel
            ):
                axes.text(start + 3 / per_pixel, place + 0.5, words, fontsize=points(_FONT_PX),
                          va="center", color="#ffffff", clip_on=True)  # fmt: skip
    axes.set_yticks([len(rows) - 0.5 - row for row in range(len(rows))],
                    [box.cut(item.name, names_px, _FONT_PX) for item in rows])  # fmt: skip
    axes.tick_params(axis="y", labelcolor=colors.TEXT)
    axes.set_ylim(0, len(rows))


def _stretches(item: Item, view: View) -> Iterator[tuple[float, float, float]]:
    """(start, end, value) of runs of one value; a run ends where samples are missing."""
    start = last = value = None
    for time, number in zip(item.times, item.field.numbers(), strict=True):
        if number != number:
            continue
        broken = last is not None and time - last > 1.5 * view.span.step
        if (
            start is not None
            and value is not None
            and last is not None
            and (number != value or broken)
        ):
            yield start, last + view.span.step if broken else time, value
            start = None
        if start is None:
            start, value = time, number
        last = time
    if start is not None and last is not None and value is not None:
        yield start, min(last + view.span.step, view.span.end), value
