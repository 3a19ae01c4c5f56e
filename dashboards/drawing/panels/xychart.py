"""XY chart: number fields against another, as points or lines (the schema of Grafana 11)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboards.drawing.canvas import Box, points
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.fields import FieldConfig, config
from dashboards.drawing.frames import NUMBER, TIME, Field, Frame
from dashboards.drawing.panels import axis, legend
from dashboards.drawing.view import Item, View


@dataclass(frozen=True, slots=True)
class Curve:
    """A series: its item (whose field is y), the x field and the x field's settings."""

    item: Item
    x: Field
    x_config: FieldConfig


def draw(box: Box, panel: Panel, frames: Sequence[Frame], view: View) -> None:
    found = curves(panel, frames)
    box = legend.draw(box, panel, [curve.item for curve in found])
    x_title = found[0].x_config.custom.get("axisLabel")
    first = found[0].item.config
    axes = axis.plot_area(box, x_title=True, y_title=bool(first.custom.get("axisLabel")))
    for curve in found:
        _curve(axes, curve)
    axis.value_axis(axes, first)
    axis.value_axis(axes, found[0].x_config, horizontal=True)
    if not x_title:
        axes.set_xlabel(found[0].x_config.name(found[0].x), fontsize=points(11))
    if first.values.get("min") is None and axes.get_yscale() == "linear":
        numbers = [n for curve in found for n in curve.item.field.numbers() if n == n]
        axes.set_ylim(min(0.0, *numbers), None)


def _curve(axes: Any, curve: Curve) -> None:
    custom = curve.item.config.custom
    pairs = sorted(
        (x, y)
        for x, y in zip(curve.x.numbers(), curve.item.field.numbers(), strict=True)
        if x == x and y == y
    )
    show = custom.get("show", "points")
    size = points((custom.get("pointSize") or {}).get("fixed", 5)) * 1.3
    dash = "--" if (custom.get("lineStyle") or {}).get("fill") in ("dash", "dot") else "-"
    axes.plot(
        [x for x, _ in pairs],
        [y for _, y in pairs],
        dash if "lines" in show else "",
        marker="o" if "points" in show else "",
        markersize=size,
        linewidth=points(custom.get("lineWidth", 1)) * 1.4,
        color=curve.item.color,
        clip_on=False,
    )


def curves(panel: Panel, frames: Sequence[Frame]) -> list[Curve]:
    """The series that `mapping` and `series` ask for; in `auto`, x is the first number field."""
    listed = panel.options.get("series") or []
    manual = panel.options.get("mapping") == "manual"
    found: list[Curve] = []
    for number, one in enumerate(listed if manual else [{}]):
        for frame in _frames(one, frames):
            xs = _fields(frame, one.get("x"), (NUMBER, TIME)) or frame.of_kind(NUMBER)[:1]
            ys = _fields(frame, one.get("y"), (NUMBER,))
            for y in ys or [f for f in frame.of_kind(NUMBER) if f is not xs[0]]:
                if xs and y is not xs[0]:
                    found.append(
                        _made(panel, frame, one, xs[0], y, number if manual else len(found))
                    )
    return found


def _made(
    panel: Panel, frame: Frame, one: Mapping[str, Any], x: Field, y: Field, number: int
) -> Curve:
    settings = config(panel, frame, y)
    name = (one.get("name") or {}).get("fixed") or " ".join([settings.name(y), *y.labels.values()])
    item = Item(name, settings.color(number), settings, y, [])
    return Curve(item, x, config(panel, frame, x))


def _frames(one: Mapping[str, Any], frames: Sequence[Frame]) -> Sequence[Frame]:
    matcher = (one.get("frame") or {}).get("matcher") or {}
    wanted = matcher.get("options")
    if matcher.get("id") == "byIndex" and wanted is not None:
        return frames[wanted : wanted + 1]
    if matcher.get("id") == "byRefId":
        return [frame for frame in frames if frame.ref == wanted]
    return frames


def _fields(frame: Frame, place: Mapping[str, Any] | None, kinds: Sequence[str]) -> list[Field]:
    matcher = (place or {}).get("matcher") or {}
    wanted = matcher.get("options")
    if matcher.get("id") == "byName":
        named = [f for f in frame.fields if wanted in (f.display, f.name)]
        # A column of text is taken as numbers where it holds some: a label is text.
        return [replace(f, kind=NUMBER) if f.kind not in kinds else f for f in named]
    if matcher.get("id") == "byType":
        return [f for f in frame.fields if f.kind == wanted]
    return []
