"""`Canvas`: a figure in pixels on which panels are boxes. `Box` is a panel's inside.

Pixels count from the top left, as Grafana's do. I/O: none but `save`.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path
from matplotlib.transforms import IdentityTransform

from dashboards.drawing import colors

DPI = 100
FONT_PX = 12
FONT = "DejaVu Sans"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": [FONT],
    "axes.edgecolor": colors.BORDER,
    "axes.labelcolor": colors.WEAK_TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": colors.GRID,
    "grid.linewidth": 0.8,
    "xtick.color": colors.WEAK_TEXT,
    "ytick.color": colors.WEAK_TEXT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": colors.TEXT,
    "text.parse_math": False,
}


def points(pixels: float) -> float:
    """matplotlib's size of text and lines that are so many pixels high or wide."""
    return pixels * 72 / DPI


@lru_cache(maxsize=4096)
def text_width(words: str, px: float, weight: str = "normal") -> float:
    """How many pixels the words are wide."""
    font = FontProperties(family=FONT, weight=weight, size=px)
    width, _, _ = text_to_path.get_text_width_height_descent(words, font, ismath=False)
    return width


class Canvas:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.figure = Figure((width / DPI, height / DPI), DPI, facecolor=colors.PAGE)
        FigureCanvasAgg(self.figure)

    def box(self, left: float, top: float, width: float, height: float) -> "Box":
        return Box(self, left, top, width, height)

    def save(self, file: Path) -> None:
        """A PNG with a palette: a quarter of the bytes, the same picture to the eye."""
        from PIL import Image

        self.figure.canvas.draw()
        pixels: Any = self.figure.canvas
        image = Image.frombuffer("RGBA", pixels.get_width_height(), pixels.buffer_rgba())
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of a canvas."""

    canvas: Canvas
    left: float
    top: float
    width: float
    height: float

    def inset(self, left: float = 0, top: float = 0, right: float = 0, bottom: float = 0) -> "Box":
        return Box(
            self.canvas,
            self.left + left,
            self.top + top,
            max(1.0, self.width - left - right),
            max(1.0, self.height - top - bottom),
        )

    def columns(self, count: int, gap: float = 6) -> list["Box"]:
        width = (self.width - gap * (count - 1)) / count
        return [
            Box(self.canvas, self.left + i * (width + gap), self.top, width, self.height)
            for i in range(count)
        ]

    def rows(self, count: int, gap: float = 6) -> list["Box"]:
        height = (self.height - gap * (count - 1)) / count
        return [
            Box(self.canvas, self.left, self.top + i * (height + gap), self.width, height)
            for i in range(count)
        ]

    def axes(self) -> Axes:
        whole = self.canvas
        place = (
            self.left / whole.width,
            1 - (self.top + self.height) / whole.height,
            self.width / whole.width,
            self.height / whole.height,
        )
        axes = whole.figure.add_axes(place)
        axes.set_facecolor("none")
        return axes

    def fill(self, color: str, edge: str = "none", radius: float = 2) -> None:
        patch = FancyBboxPatch(
            (self.left, self.canvas.height - self.top - self.height),
            self.width,
            self.height,
            boxstyle=f"round,pad=0,rounding_size={radius}",
            facecolor=color,
            edgecolor=edge,
            linewidth=0.8,
            transform=IdentityTransform(),
            zorder=-1,
        )
        self.canvas.figure.add_artist(patch)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        px: float = FONT_PX,
        color: str = colors.TEXT,
        align: str = "left",
        weight: str = "normal",
    ) -> None:
        """Words whose middle line is `y` pixels below the box's top."""
        whole = self.canvas
        whole.figure.text(
            (self.left + x) / whole.width,
            1 - (self.top + y) / whole.height,
            words,
            fontsize=points(px),
            color=color,
            ha=align,
            va="center",
            fontweight=weight,
        )

    def cut(self, words: str, pixels: float, px: float = FONT_PX, weight: str = "normal") -> str:
        """The words, shortened with an ellipsis to fit into so many pixels."""
        if text_width(words, px, weight) <= pixels:
            return words
        while words and text_width(words + "…", px, weight) > pixels:
            words = words[:-1]
        return words + "…"
