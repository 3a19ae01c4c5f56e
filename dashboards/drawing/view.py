"""`View`: the common data of all panels of a picture. `Item`: a field ready to be drawn. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.drawing.dashboard import Panel
from dashboards.drawing.fields import FieldConfig, config
from dashboards.drawing.frames import NUMBER, TIME, Field, Frame
from dashboards.drawing.prometheus import Span


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation: when, what, in which colour."""

    time: float
    text: str
    color: str


@dataclass(frozen=True, slots=True)
class View:
    span: Span
    marks: Sequence[Mark] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A field of numbers with its settings; `times` is empty where its frame has none."""

    name: str
    color: str
    config: FieldConfig
    field: Field
    times: list[float]


def items(panel: Panel, frames: Sequence[Frame]) -> list[Item]:
    """Every visible number field, in the order of the palette."""
    found: list[Item] = []
    for frame in frames:
        times = next((field.numbers() for field in frame.of_kind(TIME)), [])
        for field in frame.of_kind(NUMBER):
            settings = config(panel, frame, field)
            if not settings.hidden:
                color = settings.color(len(found))
                found.append(Item(settings.name(field), color, settings, field, times))
    return found
