"""The legend below or beside a panel: a list of names, or a table with calculations."""

from collections.abc import Sequence

from dashboards.drawing import colors
from dashboards.drawing.canvas import Box, text_width
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.transformations import CALCULATION_NAMES, CALCULATIONS
from dashboards.drawing.view import Item

LINE_PX, FONT_PX, SWATCH_PX, GAP_PX = 18, 11, 14, 16
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
        columns = _columns(items, calculations)
        width = min(box.width * 0.4, _widest(items) + sum(width for _, width in columns))
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


def _columns(items: Sequence[Item], calculations: Sequence[str]) -> list[tuple[list[str], float]]:
    """A calculation's title and values, and the width of its column."""
    columns = []
    for name in calculations:
        values = [item.config.text(CALCULATIONS[name](item.field.numbers())) for item in items]
        texts = [CALCULATION_NAMES.get(name, name), *values]
        columns.append((texts, max(text_width(text, FONT_PX) for text in texts) + GAP_PX))
    return columns


def _table(box: Box, items: Sequence[Item], calculations: Sequence[str]) -> None:
    columns = _columns(items, calculations)
    shown = int(box.height / LINE_PX) - 1
    x = box.width - 4
    for texts, width in reversed(columns):
        for row, text in enumerate(texts[: shown + 1]):
            color = colors.TEXT if row else colors.WEAK_TEXT
            box.text(x, LINE_PX * (row + 0.5), text, px=FONT_PX, color=color, align="right")
        x -= width
    if len(items) > shown:
        more = f"{len(items) - shown} more"
        box.text(4, LINE_PX / 2, more, px=FONT_PX, color=colors.WEAK_TEXT)
    for row, item in enumerate(items[:shown]):
        y = LINE_PX * (row + 1.5)
        _swatch(box, 4, y, item.color)
        name = box.cut(item.name, x - SWATCH_PX - 8, FONT_PX)
        box.text(SWATCH_PX + 8, y, name, px=FONT_PX)


def _swatch(box: Box, x: float, y: float, color: str) -> None:
    box.inset(left=x, top=y - 2, right=box.width - x - SWATCH_PX, bottom=box.height - y - 2).fill(
        color, radius=1
    )
