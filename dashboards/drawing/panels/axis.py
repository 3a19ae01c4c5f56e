"""Axes of panels: ticks in the panel's unit, scales, limits, time."""

import math
from datetime import datetime

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dashboards.drawing import colors
from dashboards.drawing.canvas import Box, points
from dashboards.drawing.fields import FieldConfig
from dashboards.drawing.prometheus import Span

_TIME_STEPS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
LEFT_PX, RIGHT_PX, BOTTOM_PX, TOP_PX, TITLE_PX = 58, 14, 22, 8, 16


def plot_area(
    box: Box, *, right: bool = False, x_title: bool = False, y_title: bool = False
) -> Axes:
    """Axes with room around them for ticks and titles."""
    return box.inset(
        left=LEFT_PX + TITLE_PX * y_title,
        top=TOP_PX,
        right=LEFT_PX if right else RIGHT_PX,
        bottom=BOTTOM_PX + TITLE_PX * x_title,
    ).axes()


def time_axis(axes: Axes, span: Span) -> None:
    """The whole span, ticks on round times of this machine's time zone."""
    width_px = axes.get_window_extent().width
    step = next((s for s in _TIME_STEPS if span.seconds / s * 75 <= width_px), _TIME_STEPS[-1])
    zone = datetime.fromtimestamp(span.start).astimezone().utcoffset()
    offset = zone.total_seconds() if zone else 0.0
    first = math.ceil((span.start + offset) / step) * step - offset
    ticks = [first + step * i for i in range(int((span.end - first) // step) + 1)]
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%m/%d"
    axes.set_xlim(span.start, span.end)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: datetime.fromtimestamp(at).strftime(form))
    )


def value_axis(axes: Axes, config: FieldConfig, *, horizontal: bool = False) -> None:
    """Scale, limits, ticks and title of the y axis, or of the x axis when `horizontal`."""
    axis = axes.xaxis if horizontal else axes.yaxis
    scale = config.custom.get("scaleDistribution") or {}
    logarithmic = scale.get("type") in ("log", "symlog")
    low, high = config.values.get("min"), config.values.get("max")
    if logarithmic:
        base = scale.get("log", 2)
        setter = axes.set_xscale if horizontal else axes.set_yscale
        setter("log", base=base)
        axis.set_major_locator(LogLocator(base=base))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(
            MaxNLocator(nbins="auto" if horizontal else 5, steps=[1, 2, 2.5, 5, 10])
        )
    axis.set_major_formatter(FuncFormatter(lambda value, _: config.text(value)))
    limits = axes.set_xlim if horizontal else axes.set_ylim
    if low is not None and not (logarithmic and low <= 0):
        limits(low, None)
    if high is not None:
        limits(None, high)
    title = config.custom.get("axisLabel")
    if title:
        (axes.set_xlabel if horizontal else axes.set_ylabel)(title, fontsize=points(11))


def threshold_lines(axes: Axes, config: FieldConfig) -> None:
    """Lines at the thresholds, where the panel asks for them."""
    mode = (config.custom.get("thresholdsStyle") or {}).get("mode", "off")
    if "line" not in mode and mode != "dashed":
        return
    for step in config.steps:
        if step.get("value") is not None:
            axes.axhline(
                step["value"], color=colors.named(step["color"]), linewidth=1.2, linestyle="--"
            )
