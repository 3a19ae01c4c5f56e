"""Heatmap: a row per series (or bucket of a histogram), time along x, the value as colour."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, LinearSegmentedColormap

from dashboards.drawing import colors, units
from dashboards.drawing.canvas import Box
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import Frame, as_number
from dashboards.drawing.panels import axis
from dashboards.drawing.view import Item, View, items

_BAR_PX = 64


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    rows = sorted(items(panel, frames), key=lambda item: _order(item.name))
    times = sorted({time for item in rows for time in item.times})
    grid = np.full((len(rows), len(times)), math.nan)
    column = {time: i for i, time in enumerate(times)}
    for row, item in enumerate(rows):
        for time, value in zip(item.times, item.field.numbers(), strict=True):
            grid[row, column[time]] = value
    low = (panel.options.get("filterValues") or {}).get("le")
    grid[grid <= (low if low is not None else 1e-9)] = math.nan
    axes = axis.plot_area(box.inset(right=_BAR_PX), y_title=False)
    axes.grid(visible=False)
    step = view.span.step
    edges = [time - step / 2 for time in times] + [times[-1] + step / 2]
    mesh = axes.pcolormesh(edges, np.arange(len(rows) + 1), grid, cmap=_scheme(panel))
    axes.set_yticks(np.arange(len(rows)) + 0.5, [_label(panel, item) for item in rows])
    axis.time_axis(axes, view.span)
    _bar(box, panel, mesh, rows[0])


def _order(name: str) -> tuple[float, str]:
    number = as_number(name)
    return (math.inf if math.isnan(number) else number, name)


def _label(panel: Panel, item: Item) -> str:
    unit = (panel.options.get("yAxis") or {}).get("unit")
    number = as_number(item.name)
    return item.name if math.isnan(number) or not unit else units.text(number, unit)


def _scheme(panel: Panel) -> Colormap:
    """The panel's scheme, or shades of its colour; Grafana's light theme turns schemes round."""
    color = panel.options.get("color") or {}
    if color.get("mode") == "opacity":
        full = colors.named(color.get("fill", "dark-orange"))
        return LinearSegmentedColormap.from_list("shades", [colors.PANEL, full])
    name = color.get("scheme", "Oranges")
    return colormaps[name if name in colormaps else "Oranges"]


def _bar(box: Box, panel: Panel, mesh: object, item: Item) -> None:
    place = box.inset(
        left=box.width - _BAR_PX - 2,
        top=axis.TOP_PX + 4,
        right=_BAR_PX - 10,
        bottom=axis.BOTTOM_PX + 4,
    ).axes()
    bar = box.canvas.figure.colorbar(mesh, cax=place)  # type: ignore[arg-type]
    bar.outline.set_visible(False)
    place.grid(visible=False)
    place.yaxis.set_major_formatter(lambda value, _: item.config.text(value))
