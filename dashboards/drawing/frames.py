"""Grafana's data frames, made of Prometheus' answers. Pure.

A frame is a table of fields; a field has a name, labels and values, and its display name comes from
the query's legend. A range query gives one frame per series (Time and Value); the format `table`
gives one frame per query, with a column per label; the format `heatmap` gives series in the order
of their buckets, each bucket without the ones below it.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboards.drawing.prometheus import Result

Value = float | str | None
TIME, NUMBER, STRING = "time", "number", "string"


@dataclass(frozen=True, slots=True)
class Field:
    """One column. `legend` is the display name that the query gave it, if any."""

    name: str
    kind: str
    values: list[Value]
    labels: Mapping[str, str]
    legend: str | None = None

    @property
    def display(self) -> str:
        return self.legend or self.name

    def numbers(self) -> list[float]:
        """The values as numbers; NaN for what is none."""
        return [as_number(value) for value in self.values]


@dataclass(frozen=True, slots=True)
class Frame:
    """Fields of equal length from one query."""

    ref: str
    fields: list[Field]

    @property
    def rows(self) -> int:
        return len(self.fields[0].values) if self.fields else 0

    def of_kind(self, kind: str) -> list[Field]:
        return [field for field in self.fields if field.kind == kind]

    def with_fields(self, fields: Iterable[Field]) -> "Frame":
        return replace(self, fields=[*fields])


def as_number(value: Value) -> float:
    try:
        return math.nan if value is None else float(value)
    except ValueError:
        return math.nan


def from_results(target: Mapping[str, Any], results: Sequence[Result]) -> list[Frame]:
    """The frames of one query's answer."""
    ref = target.get("refId", "A")
    form = target.get("format") or "time_series"
    if form == "table":
        return [_table(ref, results)]
    frames = [_series(ref, target.get("legendFormat") or "", result) for result in results]
    return _buckets(frames) if form == "heatmap" else frames


def _series(ref: str, legend: str, result: Result) -> Frame:
    times = Field("Time", TIME, [time for time, _ in result.points], {})
    values: list[Value] = [value for _, value in result.points]
    name = _legend(legend, result.labels)
    return Frame(ref, [times, Field("Value", NUMBER, values, result.labels, name)])


def _legend(form: str, labels: Mapping[str, str]) -> str:
    if form and form != "__auto":
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), form)
    if len(labels) == 1 and form == "__auto":
        return next(iter(labels.values()))
    shown = ", ".join(f'{key}="{value}"' for key, value in labels.items() if key != "__name__")
    return f"{labels.get('__name__', '')}{{{shown}}}" if shown else labels.get("__name__", "Value")


def _table(ref: str, results: Sequence[Result]) -> Frame:
    names = sorted({name for result in results for name in result.labels})
    rows = [(result.labels, time, value) for result in results for time, value in result.points]
    fields = [Field("Time", TIME, [time for _, time, _ in rows], {})]
    fields += [
        Field(name, STRING, [labels.get(name, "") for labels, _, _ in rows], {}) for name in names
    ]
    fields.append(Field("Value", NUMBER, [value for _, _, value in rows], {}))
    return Frame(ref, fields)


def _buckets(frames: Sequence[Frame]) -> list[Frame]:
    """Cumulative `le` series made into counts of each bucket."""
    ordered = sorted(frames, key=lambda frame: as_number(frame.fields[1].labels.get("le", "nan")))
    below: dict[float, float] = {}
    made = []
    for frame in ordered:
        times, counts = frame.fields
        alone: list[Value] = []
        for time, count in zip(times.numbers(), counts.numbers(), strict=True):
            alone.append(max(0.0, count - below.get(time, 0.0)))
            below[time] = count
        le = counts.labels.get("le", counts.display)
        made.append(frame.with_fields([times, replace(counts, values=alone, legend=le)]))
    return made
