"""Text: a panel's Markdown as plain lines."""

import re
import textwrap
from collections.abc import Sequence

from dashboards.drawing.canvas import FONT_PX, Box, text_width
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import Frame
from dashboards.drawing.view import View

_LINE_PX = 17


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    width = int(box.width / text_width("average words", FONT_PX) * len("average words"))
    y = _LINE_PX / 2
    for paragraph in (panel.options.get("content") or "").splitlines():
        heading = paragraph.startswith("#")
        for line in textwrap.wrap(_plain(paragraph), width) or [""]:
            if y > box.height:
                return
            box.text(4, y, line, weight="bold" if heading else "normal")
            y += _LINE_PX


def _plain(markdown: str) -> str:
    """The words without Markdown's signs; of a link, its text."""
    without_links = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"^#+\s*|\*\*|`", "", without_links)
