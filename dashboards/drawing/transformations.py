"""Grafana's transformations, those that these dashboards use. Pure.

Contract: `apply(frames, transformations)` runs them in order; one that is not known here is an
UnknownTransformationError, so that no picture differs from Grafana's without a message.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dashboards.drawing.frames import (
    NUMBER,
    STRING,
    TIME,
    Field,
    Frame,
    Value,
    as_number,
)

Options = Mapping[str, Any]


class UnknownTransformationError(Exception):
    """A dashboard uses a transformation that the preview does not draw."""


def apply(frames: Sequence[Frame], transformations: Sequence[Options]) -> list[Frame]:
    """The frames after every transformation that is switched on."""
    found = [*frames]
    for one in transformations:
        if one.get("disabled"):
            continue
        if one["id"] not in KNOWN:
            raise UnknownTransformationError(f"transformation {one['id']} is not drawn here")
        found = KNOWN[one["id"]](found, one.get("options") or {})
    return found


def _key(frame: Frame, name: str | None) -> Field | None:
    if name is None:
        return next(iter(frame.of_kind(TIME)), None)
    return next((f for f in frame.fields if name in (f.name, f.display)), None)


def organize(frames: list[Frame], options: Options) -> list[Frame]:
    """Columns left out, in another order, and renamed."""
    left_out = {name for name, out in (options.get("excludeByName") or {}).items() if out}
    order = options.get("indexByName") or {}
    names = options.get("renameByName") or {}
    made = []
    for frame in frames:
        kept = [f for f in frame.fields if not left_out & {f.name, f.display}]
        kept.sort(key=lambda f: order.get(f.display, order.get(f.name, math.inf)))
        made.append(frame.with_fields(_renamed(f, names) for f in kept))
    return made


def _renamed(field: Field, names: Mapping[str, str]) -> Field:
    name = names.get(field.display) or names.get(field.name)
    return replace(field, name=name, legend=name) if name else field


def sort_by(frames: list[Frame], options: Options) -> list[Frame]:
    made = []
    for frame in frames:
        order = [*range(frame.rows)]
        for rule in reversed(options.get("sort") or []):
            field = _key(frame, rule["field"])
            if field is not None:
                values = field.values
                order.sort(key=lambda row: _sortable(values[row]), reverse=bool(rule.get("desc")))
        made.append(_rows(frame, order))
    return made


def convert_field_type(frames: list[Frame], options: Options) -> list[Frame]:
    wanted = {one["targetField"]: one["destinationType"] for one in options["conversions"]}

    def converted(field: Field) -> Field:
        kind = wanted.get(field.display) or wanted.get(field.name)
        if kind == "number":
            numbers: list[Value] = [
                None if math.isnan(number) else number for number in field.numbers()
            ]
            return replace(field, kind=NUMBER, values=numbers)
        if kind == "string":
            return replace(field, kind=STRING, values=[_as_text(value) for value in field.values])
        return field

    return [frame.with_fields([converted(f) for f in frame.fields]) for frame in frames]


def partition_by_values(frames: list[Frame], options: Options) -> list[Frame]:
    """A frame for each combination of values; the values become labels of its numbers."""
    made = []
    for frame in frames:
        keys = [field for name in options["fields"] if (field := _key(frame, name))]
        if not keys:
            made.append(frame)
            continue
        rows: dict[tuple[Value, ...], list[int]] = {}
        for row in range(frame.rows):
            rows.setdefault(tuple(key.values[row] for key in keys), []).append(row)
        for values, places in rows.items():
            part = _rows(frame, places)
            labels = {key.name: _as_text(value) for key, value in zip(keys, values, strict=True)}
            kept = [
                replace(field, labels={**field.labels, **labels})
                for field in part.fields
                if options.get("keepFields") or field.name not in labels
            ]
            made.append(part.with_fields(kept))
    return made


def grouping_to_matrix(frames: list[Frame], options: Options) -> list[Frame]:
    """A row for each value of one field, a column for each of another."""
    if not frames:
        return []
    frame = frames[0]
    across, down, value = (
        _key(frame, options.get(name)) for name in ("columnField", "rowField", "valueField")
    )
    if across is None or down is None or value is None:
        return frames
    rows, columns = [*dict.fromkeys(down.values)], [*dict.fromkeys(across.values)]
    cells = dict(zip(zip(down.values, across.values, strict=True), value.values, strict=True))
    head = Field(f"{down.display}\\{across.display}", down.kind, rows, {})
    return [
        frame.with_fields(
            [
                head,
                *(
                    Field(_as_text(column), NUMBER, [cells.get((row, column)) for row in rows], {})
                    for column in columns
                ),
            ]
        )
    ]


def _known(numbers: Sequence[float]) -> list[float]:
    return [number for number in numbers if not math.isnan(number)]


CALCULATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "lastNotNull": lambda n: _known(n)[-1] if _known(n) else math.nan,
    "last": lambda n: n[-1] if n else math.nan,
    "firstNotNull": lambda n: _known(n)[0] if _known(n) else math.nan,
    "first": lambda n: n[0] if n else math.nan,
    "mean": lambda n: sum(_known(n)) / len(_known(n)) if _known(n) else math.nan,
    "max": lambda n: max(_known(n), default=math.nan),
    "min": lambda n: min(_known(n), default=math.nan),
    "sum": lambda n: sum(_known(n)),
    "count": lambda n: float(len(n)),
    "range": lambda n: max(_known(n), default=math.nan) - min(_known(n), default=math.nan),
    "delta": lambda n: sum(max(0.0, b - a) for a, b in zip(_known(n), _known(n)[1:], strict=False)),
    "diff": lambda n: (_known(n)[-1] - _known(n)[0]) if _known(n) else math.nan,
}
CALCULATION_NAMES = {
    "lastNotNull": "Last *", "last": "Last", "mean": "Mean", "max": "Max", "min": "Min",
    "sum": "Total", "count": "Count", "firstNotNull": "First *", "first": "First",
    "range": "Range", "delta": "Delta", "diff": "Difference",
}  # fmt: skip


def _rows(frame: Frame, order: Sequence[int]) -> Frame:
    return frame.with_fields(
        [replace(field, values=[field.values[row] for row in order]) for field in frame.fields]
    )


def _as_text(value: Value) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def _sortable(value: Value) -> tuple[int, float, str]:
    if isinstance(value, str):
        number = as_number(value)
        return (1, 0.0, value) if math.isnan(number) else (0, number, "")
    return (2, 0.0, "") if value is None or math.isnan(value) else (0, float(value), "")


KNOWN: dict[str, Callable[[list[Frame], Options], list[Frame]]] = {
    "convertFieldType": convert_field_type,
    "groupingToMatrix": grouping_to_matrix,
    "organize": organize,
    "partitionByValues": partition_by_values,
    "sortBy": sort_by,
}
