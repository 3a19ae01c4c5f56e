"""Stat: the last (or mean, ...) value of each series, large, with a line of its past below."""

from collections.abc import Sequence

from dashboards.drawing import colors
from dashboards.drawing.canvas import Box, text_width
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import STRING, Frame, Value
from dashboards.drawing.transformations import CALCULATIONS
from dashboards.drawing.view import Item, View, items

LARGEST_PX, SMALLEST_PX = 34, 12


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    options = panel.options
    if texts := _texts(panel, frames):
        box.text(
            box.width / 2, box.height / 2, box.cut(texts[0], box.width, 18), px=18, align="center"
        )
        return
    shown = items(panel, frames)
    vertical = options.get("orientation") == "horizontal" or box.height > box.width * 1.3
    tiles = box.rows(len(shown)) if vertical else box.columns(len(shown))
    name_wanted = options.get("textMode", "auto")
    named = name_wanted in ("value_and_name", "name") or (name_wanted == "auto" and len(shown) > 1)
    for tile, item in zip(tiles, shown, strict=True):
        _tile(tile, panel, item, named, view)


def reduced(panel: Panel, item: Item) -> Value:
    """The panel's calculation on the item's values."""
    names = (panel.options.get("reduceOptions") or {}).get("calcs") or ["lastNotNull"]
    return CALCULATIONS[names[0]](item.field.numbers())


def _texts(panel: Panel, frames: Sequence[Frame]) -> list[str]:
    """Last values of the string field that `reduceOptions.fields` asks for, as in a version."""
    wanted = (panel.options.get("reduceOptions") or {}).get("fields", "").strip("/^$")
    fields = [
        f for frame in frames for f in frame.of_kind(STRING) if wanted and wanted == f.display
    ]
    return [str(field.values[-1]) for field in fields if field.values]


def _tile(box: Box, panel: Panel, item: Item, named: bool, view: View) -> None:
    options = panel.options
    value = reduced(panel, item)
    color = item.config.value_color(value)
    only_name = options.get("textMode") == "name"
    words = item.name if only_name else item.config.text(value)
    paint = options.get("colorMode", "value")
    if paint.startswith("background"):
        box.fill(color, radius=3)
    text_color = {"value": color, "none": colors.TEXT}.get(paint, "#ffffff")
    spark = options.get("graphMode", "area") == "area" and len(item.times) > 1
    middle = box.height * (0.42 if spark else 0.5)
    if named and not only_name:
        name = box.cut(item.name, box.width - 8, 11)
        box.text(
            box.width / 2, min(12, middle - 12), name, px=11, color=colors.WEAK_TEXT, align="center"
        )
        middle += 8
    fitting = LARGEST_PX * (box.width - 12) / max(text_width(words, LARGEST_PX, "bold"), 1)
    px = max(SMALLEST_PX, min(LARGEST_PX, fitting, box.height * 0.5))
    box.text(box.width / 2, middle, words, px=px, color=text_color, align="center", weight="bold")
    if spark:
        _sparkline(box.inset(top=box.height * 0.72), item, color, view)


def _sparkline(box: Box, item: Item, color: str, view: View) -> None:
    axes = box.axes()
    axes.set_axis_off()
    numbers = item.field.numbers()
    axes.plot(item.times, numbers, color=color, linewidth=1)
    known = [number for number in numbers if number == number]
    floor = min(known, default=0.0)
    axes.fill_between(item.times, numbers, floor, color=color, alpha=0.2, linewidth=0)
    axes.set_xlim(view.span.start, view.span.end)
