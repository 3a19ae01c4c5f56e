"""Table: the first frame's rows as text, as many as fit."""

from collections.abc import Sequence
from datetime import datetime

from dashboards.drawing import colors
from dashboards.drawing.canvas import Box
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.fields import FieldConfig, config
from dashboards.drawing.frames import NUMBER, TIME, Field, Frame, Value, as_number
from dashboards.drawing.view import View

_ROW_PX, _FONT_PX, _PAD = 26, 12, 8


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    frame = frames[0]
    columns = [(field, config(panel, frame, field)) for field in frame.fields]
    columns = [
        (field, settings) for field, settings in columns if not settings.custom.get("hidden")
    ]
    texts = [[_text(field, row, s) for row in range(frame.rows)] for field, s in columns]
    names = [settings.name(field) for field, settings in columns]
    lengths = [
        max([len(name), *map(len, column)]) + 2 for name, column in zip(names, texts, strict=True)
    ]
    numbers = [n for field, _ in columns if field.kind == NUMBER for n in field.numbers() if n == n]
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    left = 0.0
    fitting = int(box.height / _ROW_PX) - 1
    for (field, settings), name, column, length in zip(columns, names, texts, lengths, strict=True):
        width = box.width * length / sum(lengths)
        right = field.kind == NUMBER
        x = left + (width - _PAD if right else _PAD)
        align = "right" if right else "left"
        name = box.cut(name, width - _PAD, _FONT_PX)
        box.text(x, _ROW_PX / 2, name, color=colors.WEAK_TEXT, align=align, weight="bold")
        for row, words in enumerate(column[:fitting]):
            top = _ROW_PX * (row + 1)
            part = (as_number(field.values[row]) - low) / ((high - low) or 1.0)
            paint, ink = _cell_colors(field.values[row], part, settings)
            if paint:
                right_px, below = box.width - left - width + 1, box.height - top - _ROW_PX + 1
                box.inset(left + 1, top + 1, right_px, below).fill(paint)
            fitted = box.cut(words, width - _PAD, _FONT_PX)
            box.text(x, top + _ROW_PX / 2, fitted, align=align, color=ink)
        left += width
    if frame.rows > fitting:
        more = f"{frame.rows - fitting} more rows"
        box.text(box.width, box.height - 4, more, px=10, color=colors.WEAK_TEXT, align="right")


def _text(field: Field, row: int, settings: FieldConfig) -> str:
    value = field.values[row]
    if field.kind == TIME and isinstance(value, (int, float)):
        return datetime.fromtimestamp(value).strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else settings.text(value)


def _cell_colors(value: Value, part: float, settings: FieldConfig) -> tuple[str | None, str]:
    """(background or None, text) of a cell whose value lies at `part` of the table's range."""
    kind = (settings.custom.get("cellOptions") or {}).get("type", "auto")
    if not kind.startswith("color") or part != part:
        return None, colors.TEXT
    mode = (settings.values.get("color") or {}).get("mode", "thresholds")
    color = colors.continuous(mode, part) or settings.value_color(value)
    return (color, colors.on(color)) if kind == "color-background" else (None, color)
