"""The legend below or beside a panel: a list of names, or a table with calculations."""

from collections.abc import Sequence

from dashboards.drawing import colors
from dashboards.drawing.canvas import Box, text_width
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.transformations import CALCULATION_NAMES, CALCULATIONS
from dashboards.drawing.view import Item

LINE_PX, FONT_PX, SWATCH_PX, COLUMN_PX = 18, 11, 14, 76
LARGEST_PART = 0.45


def draw(box: Box, panel: Panel, items: Sequence[Item]) -> Box:
    """Draw it where the panel wants it; the rest of the box."""
    options = panel.options.get("legend") or {}
    mode = options.get("displayMode", "list")
    if not options.get("showLegend", True) or mode == "hidden" or not items:
        return box
    calculations = [name for name in options.get("calcs") or [] if name in CALCULATIONS]
    right = options.get("placement") == "right"
    if right:
        width = min(box.width * 0.4, _widest(items) + COLUMN_PX * len(calculations))
        place = box.inset(left=box.width - width + 8)
        rest = box.inset(right=width)
    else:
        rows = len(items) + 1 if mode == "table" else len(_lines(items, calculations, box.width))
        height = min(box.height * LARGEST_PART, rows * LINE_PX + 4)
        place = box.inset(top=box.height - height)
        rest = box.inset(bottom=height)
    if mode == "table" or right:
        _table(place, items, calculations)
    else:
        _list(place, items, calculations)
    return rest


def _label(item: Item, calculations: Sequence[str]) -> str:
    numbers = item.field.numbers()
    shown = [
        f"{CALCULATION_NAMES.get(name, name)}: {item.config.text(CALCULATIONS[name](numbers))}"
        for name in calculations
    ]
    return "  ".join([item.name, *shown])


def _widest(items: Sequence[Item]) -> float:
    return max(text_width(item.name, FONT_PX) for item in items) + SWATCH_PX + 24


def _width(label: str) -> float:
    return text_width(label, FONT_PX) + SWATCH_PX + 20


def _lines(
    items: Sequence[Item], calculations: Sequence[str], width: float
) -> list[list[tuple[Item, str]]]:
    lines: list[list[tuple[Item, str]]] = [[]]
    used = 0.0
    for item in items:
        label = _label(item, calculations)
        if lines[-1] and used + _width(label) > width:
            lines.append([])
            used = 0.0
        lines[-1].append((item, label))
        used += _width(label)
    return lines


def _list(box: Box, items: Sequence[Item], calculations: Sequence[str]) -> None:
    for row, line in enumerate(_lines(items, calculations, box.width)):
        y = LINE_PX * (row + 0.5) + 4
        if y > box.height:
            return
        x = 4.0
        for item, label in line:
            _swatch(box, x, y, item.color)
            box.text(x + SWATCH_PX + 4, y, box.cut(label, box.width - x, FONT_PX), px=FONT_PX)
            x += _width(label)


def _table(box: Box, items: Sequence[Item], calculations: Sequence[str]) -> None:
    for column, name in enumerate(reversed(calculations)):
        x = box.width - 4 - column * COLUMN_PX
        title = CALCULATION_NAMES.get(name, name)
        box.text(x, LINE_PX / 2, title, px=FONT_PX, color=colors.WEAK_TEXT, align="right")
    for row, item in enumerate(items):
        y = LINE_PX * (row + 1.5)
        if y + LINE_PX / 2 > box.height:
            return
        _swatch(box, 4, y, item.color)
        room = box.width - COLUMN_PX * len(calculations) - SWATCH_PX - 12
        box.text(SWATCH_PX + 8, y, box.cut(item.name, room, FONT_PX), px=FONT_PX)
        numbers = item.field.numbers()
        for column, name in enumerate(reversed(calculations)):
            value = item.config.text(CALCULATIONS[name](numbers))
            box.text(box.width - 4 - column * COLUMN_PX, y, value, px=FONT_PX, align="right")


def _swatch(box: Box, x: float, y: float, color: str) -> None:
    box.inset(left=x, top=y - 2, right=box.width - x - SWATCH_PX, bottom=box.height - y - 2).fill(
        color, radius=1
    )
