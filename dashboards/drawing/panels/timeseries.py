"""Time series: lines, bars or points on one or two value axes, stacks, annotations."""

import math
from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes

from dashboards.drawing.canvas import Box, points
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import Frame
from dashboards.drawing.panels import axis, legend
from dashboards.drawing.view import Item, View, items

_STEPS = {"stepAfter": "steps-post", "stepBefore": "steps-pre"}
_GAP_STEPS = 1.5


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    shown = [item for item in items(panel, frames) if item.times]
    box = legend.draw(box, panel, shown)
    left, right = _by_axis(shown)
    titles = [bool(side and side[0].config.custom.get("axisLabel")) for side in (left, right)]
    area = box.inset(right=axis.TITLE_PX if titles[1] else 0)
    main = axis.plot_area(area, right=bool(right), y_title=titles[0])
    second = main.twinx() if right else None
    for axes, side in ((main, left), (second, right)):
        if axes is not None and side:
            _series(axes, side, view)
            axis.value_axis(axes, side[0].config)
            axis.threshold_lines(axes, side[0].config)
    if second is not None:
        second.grid(visible=False)
    for mark in view.marks:
        if view.span.start <= mark.time <= view.span.end:
            main.axvline(mark.time, color=mark.color, linewidth=1, linestyle=(0, (3, 3)))
            main.plot([mark.time], [0], marker=(3, 0, 0), markersize=5, color=mark.color,
                      transform=main.get_xaxis_transform(), clip_on=False)  # fmt: skip
    axis.time_axis(main, view.span)


def _by_axis(shown: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Items of the left and of the right axis: the first unit goes left, others right."""
    left: list[Item] = []
    right: list[Item] = []
    first_unit: str | None = None
    for item in shown:
        placement = item.config.custom.get("axisPlacement", "auto")
        if placement == "right":
            right.append(item)
        elif placement == "left" or not left or item.config.unit == first_unit:
            first_unit = item.config.unit if not left else first_unit
            left.append(item)
        else:
            right.append(item)
    return (left, right) if left else (right, [])


def _series(axes: Axes, shown: Sequence[Item], view: View) -> None:
    below: dict[str, dict[float, float]] = {}
    lowest = math.inf
    for item in shown:
        custom = item.config.custom
        values = item.field.numbers()
        stacking = custom.get("stacking") or {}
        base: list[float] | float = 0.0
        if stacking.get("mode") in ("normal", "percent"):
            group = below.setdefault(stacking.get("group", "A"), {})
            base = [group.get(time, 0.0) for time in item.times]
            values = [v + b if v == v else v for v, b in zip(values, base, strict=True)]
            group.update({t: v for t, v in zip(item.times, values, strict=True) if v == v})
        lowest = min([lowest, *(value for value in values if value == value)])
        _one(axes, item, values, base, view)
    if lowest >= 0:
        # Grafana starts at zero only where values come near it.
        top = axes.get_ylim()[1]
        if lowest < top / 2:
            axes.set_ylim(0, top)


def _one(
    axes: Axes, item: Item, values: list[float], base: list[float] | float, view: View
) -> None:
    custom = item.config.custom
    style = custom.get("drawStyle", "line")
    width = points(custom.get("lineWidth", 1)) * 1.4
    if style == "bars":
        bottoms = base if isinstance(base, list) else [base] * len(values)
        heights = [value - bottom for value, bottom in zip(values, bottoms, strict=True)]
        axes.bar(item.times, heights, view.span.step * 0.8, bottoms, color=item.color, alpha=0.85)
        return
    if style == "points":
        size = points(custom.get("pointSize", 5))
        axes.plot(item.times, values, "o", markersize=size, color=item.color)
        return
    times, values, lower = _with_gaps(item, values, base, view)
    steps = _STEPS.get(custom.get("lineInterpolation", "linear"), "default")
    dash = "--" if (custom.get("lineStyle") or {}).get("fill") in ("dash", "dot") else "-"
    axes.plot(times, values, dash, linewidth=width, color=item.color, drawstyle=steps)
    if custom.get("showPoints") == "always" or len(item.times) == 1:
        axes.plot(item.times, [*item.field.numbers()], "o", markersize=3.5, color=item.color)
    if opacity := custom.get("fillOpacity", 0):
        step = {"steps-post": "post", "steps-pre": "pre"}.get(steps)
        axes.fill_between(
            times, values, lower, color=item.color, alpha=opacity / 100, linewidth=0,
            step=step,  # type: ignore[arg-type]
        )  # fmt: skip


def _with_gaps(
    item: Item, values: list[float], base: list[float] | float, view: View
) -> tuple[list[float], list[float], list[float]]:
    """The line with a hole where samples are missing, unless it spans them."""
    lower = base if isinstance(base, list) else [base] * len(values)
    spans = item.config.custom.get("spanNulls", False)
    if spans is True or not item.times:
        kept = [i for i, value in enumerate(values) if value == value]
        return [item.times[i] for i in kept], [values[i] for i in kept], [lower[i] for i in kept]
    limit = spans / 1000 if spans else view.span.step * _GAP_STEPS
    times, shown, bottoms = [item.times[0]], [values[0]], [lower[0]]
    for i, (before, now) in enumerate(pairwise(item.times), start=1):
        if now - before > limit:
            times.append(before + view.span.step / 2)
            shown.append(math.nan)
            bottoms.append(math.nan)
        times.append(now)
        shown.append(values[i])
        bottoms.append(lower[i])
    return times, shown, bottoms
