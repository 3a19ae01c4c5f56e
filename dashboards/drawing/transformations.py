"""Grafana's transformations, those that these dashboards use. Pure.

Contract: `apply(frames, transformations)` runs them in order; one that is not known here is an
UnknownTransformationError, so that no picture is silently another than Grafana's.
"""

import math
import re
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
    name_values,
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


def join_by_field(frames: list[Frame], options: Options) -> list[Frame]:
    """One frame, a row for each value of the field (the first time field without one)."""
    if not frames:
        return []
    key_name, inner = options.get("byField"), options.get("mode") == "inner"
    named = name_values(frames)
    keyed = [(frame, _key(frame, key_name)) for frame in named]
    present = [(frame, key) for frame, key in keyed if key is not None]
    if not present:
        return []
    every: dict[Value, None] = {}
    for _, key in present:
        every.update(dict.fromkeys(key.values))
    if inner:
        every = {value: None for value in every if all(value in key.values for _, key in present)}
    first = present[0][1]
    order = sorted(every, key=_sortable) if first.kind != STRING else [*every]
    joined = [replace(first, values=order)]
    for frame, key in present:
        at = {value: row for row, value in enumerate(key.values)}
        joined += [
            replace(field, values=[field.values[at[v]] if v in at else None for v in order])
            for field in frame.fields
            if field is not key
        ]
    return [Frame(present[0][0].ref, joined)]


def _key(frame: Frame, name: str | None) -> Field | None:
    if name is None:
        return next(iter(frame.of_kind(TIME)), None)
    return next((f for f in frame.fields if name in (f.name, f.display)), None)


def merge(frames: list[Frame], _: Options) -> list[Frame]:
    """Rows of all frames, those that agree in every common column made into one."""
    frames = [frame for frame in name_values(frames) if frame.fields]
    if not frames:
        return []
    columns: dict[str, Field] = {}
    for frame in frames:
        for field in frame.fields:
            columns.setdefault(field.display, field)
    values_of = {name for name, field in columns.items() if field.kind == NUMBER}
    rows: dict[tuple[Any, ...], dict[str, Value]] = {}
    keys = [name for name in columns if name not in values_of]
    for frame in frames:
        for row in range(frame.rows):
            content = {field.display: field.values[row] for field in frame.fields}
            rows.setdefault(tuple(content.get(key) for key in keys), {}).update(content)
    return [
        Frame(
            frames[0].ref,
            [
                replace(field, values=[row.get(name) for row in rows.values()])
                for name, field in columns.items()
            ],
        )
    ]


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


def filter_fields_by_name(frames: list[Frame], options: Options) -> list[Frame]:
    def kept(field: Field) -> bool:
        for rule, wanted in ((options.get("include"), True), (options.get("exclude"), False)):
            if rule and _named(field, rule) is not wanted:
                return False
        return True

    return [frame.with_fields([f for f in frame.fields if kept(f)]) for frame in frames]


def _named(field: Field, rule: Options) -> bool:
    if field.display in (rule.get("names") or []) or field.name in (rule.get("names") or []):
        return True
    pattern = (rule.get("pattern") or "").strip("/")
    return bool(pattern and re.search(pattern, field.display))


def rename_by_regex(frames: list[Frame], options: Options) -> list[Frame]:
    pattern = (options.get("regex") or "").strip("/")
    by = re.sub(r"\$(\d)", r"\\\1", options.get("renamePattern") or "")

    def renamed(field: Field) -> Field:
        name = re.sub(pattern, by, field.display, count=1)
        return field if name == field.display else replace(field, name=name, legend=name)

    return [frame.with_fields([renamed(f) for f in frame.fields]) for frame in frames]


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


def labels_to_fields(frames: list[Frame], options: Options) -> list[Frame]:
    """Labels become columns; `valueLabel` names the value's column."""
    value_label = options.get("valueLabel")
    made = []
    for frame in frames:
        fields = [*frame.of_kind(TIME)]
        labels: dict[str, str] = {}
        for field in frame.of_kind(NUMBER):
            labels |= field.labels
            name = field.labels.get(value_label, field.name) if value_label else field.name
            fields.append(replace(field, name=name, legend=None, labels={}))
        fields += [
            Field(key, STRING, [value] * frame.rows, {})
            for key, value in labels.items()
            if key != value_label and key != "__name__"
        ]
        made.append(frame.with_fields(fields))
    return made


def reduce_(frames: list[Frame], options: Options) -> list[Frame]:
    """`seriesToRows`: a row a field, a column a calculation. `reduceFields`: one row."""
    names = options.get("reducers") or ["max"]
    if options.get("mode") == "reduceFields":
        return [
            frame.with_fields(
                [
                    replace(f, values=[CALCULATIONS[names[0]](f.numbers())])
                    for f in frame.of_kind(NUMBER)
                ]
            )
            for frame in frames
        ]
    fields = [field for frame in frames for field in frame.of_kind(NUMBER)]
    columns = [Field("Field", STRING, [f.display for f in fields], {})]
    for name in names:
        values: list[Value] = [CALCULATIONS[name](f.numbers()) for f in fields]
        columns.append(Field(CALCULATION_NAMES.get(name, name), NUMBER, values, {}))
    return [Frame(frames[0].ref, columns)] if frames else []


def calculate_field(frames: list[Frame], options: Options) -> list[Frame]:
    """A column from two others."""
    if options.get("mode") != "binary":
        raise UnknownTransformationError(f"calculateField mode {options.get('mode')} is not drawn")
    rule = options["binary"]
    made = []
    for frame in frames:
        sides = [_operand(frame, rule["left"]), _operand(frame, rule["right"])]
        if None in sides:
            made.append(frame)
            continue
        left, right = (side or [] for side in sides)
        operation = _OPERATIONS[rule["operator"]]
        values: list[Value] = [operation(a, b) for a, b in zip(left, right, strict=True)]
        name = options.get("alias") or f"{rule['left']} {rule['operator']} {rule['right']}"
        kept = frame.of_kind(TIME) if options.get("replaceFields") else frame.fields
        made.append(frame.with_fields([*kept, Field(name, NUMBER, values, {})]))
    return made


def _operand(frame: Frame, side: Any) -> list[float] | None:
    if isinstance(side, Mapping):
        side = side.get("fixed") or (side.get("matcher") or {}).get("options")
    field = _key(frame, side)
    if field is not None:
        return field.numbers()
    number = as_number(side)
    return None if math.isnan(number) else [number] * frame.rows


def _divided(a: float, b: float) -> float:
    return a / b if b else math.nan


_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divided,
}


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
    "joinByField": join_by_field,
    "merge": merge,
    "organize": organize,
    "filterFieldsByName": filter_fields_by_name,
    "renameByRegex": rename_by_regex,
    "sortBy": sort_by,
    "convertFieldType": convert_field_type,
    "labelsToFields": labels_to_fields,
    "reduce": reduce_,
    "calculateField": calculate_field,
}
