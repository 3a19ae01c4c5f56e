"""Public request traces: Azure LLM inference, BurstGPT, Mooncake.

Contract: the schema is found from the first line. A broken line is an error that names it, or is
left out and counted. I/O: the file.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BURST = ("Timestamp", "Request tokens", "Response tokens")
_MOONCAKE = ("timestamp", "input_length", "output_length")
_SHOWN = 3


class TraceError(ValueError):
    """A trace that cannot be read; the message names file, line and reason."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Seconds on the trace's own clock, and lengths in tokens."""

    at: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of time."""

    schema: str
    requests: tuple[TraceRequest, ...]
    broken_lines: int


def read_trace(path: Path, *, skip_broken: bool = False) -> Trace:
    """Read a whole trace. TraceError for one that is broken, empty or of an unknown schema."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            schema, rows = _rows(file, path)
            requests, broken = _requests(rows, _PARSERS[schema])
    except OSError as error:
        raise TraceError(f"--trace {path}: {error.strerror or error}") from None
    if broken and not skip_broken:
        first = "; ".join(f"line {number}: {reason}" for number, reason in broken[:_SHOWN])
        more = f" and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        raise TraceError(
            f"{path}: {len(broken)} broken lines: {first}{more}; --skip-broken-lines skips them"
        )
    if not requests:
        raise TraceError(f"{path}: holds no request")
    return Trace(schema, tuple(sorted(requests, key=lambda one: one.at)), len(broken))


def _rows(file: Any, path: Path) -> tuple[str, Iterator[tuple[int, Mapping[str, Any] | str]]]:
    """The schema, and (line number, fields), the line itself where it has none."""
    first = file.readline()
    file.seek(0)
    if first.lstrip().startswith("{"):
        return "mooncake", _json_rows(file)
    header = next(csv.reader([first.lstrip("\ufeff")]), [])
    for schema, needed in (("azure", _AZURE), ("burstgpt", _BURST)):
        if all(name in header for name in needed):
            return schema, _csv_rows(file)
    raise TraceError(
        f"{path}: not a known trace; expected a CSV with {', '.join(_AZURE)} (Azure) or "
        f"{', '.join(_BURST)} "
        f"(BurstGPT), or JSON lines with {', '.join(_MOONCAKE)} (Mooncake)"
    )


def _csv_rows(file: Any) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    reader = csv.DictReader(file)
    if reader.fieldnames:
        reader.fieldnames = [name.lstrip("\ufeff") for name in reader.fieldnames]
    for row in reader:
        yield reader.line_num, row


def _json_rows(file: Any) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = line
            yield number, row if isinstance(row, dict) else line


def _requests(
    rows: Iterator[tuple[int, Mapping[str, Any] | str]],
    parse: Callable[[Mapping[str, Any]], TraceRequest],
) -> tuple[list[TraceRequest], list[tuple[int, str]]]:
    requests, broken = [], []
    for number, row in rows:
        try:
            if isinstance(row, str):
                raise ValueError(f"not a JSON object: {row.strip()[:60]!r}")
            requests.append(parse(row))
        except ValueError as error:
            broken.append((number, str(error)))
    return requests, broken


def _azure(row: Mapping[str, Any]) -> TraceRequest:
    text = str(row["TIMESTAMP"])
    try:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"TIMESTAMP {text!r} is not a time") from None
    return TraceRequest(at, _tokens(row, "ContextTokens"), _tokens(row, "GeneratedTokens"))


def _burst(row: Mapping[str, Any]) -> TraceRequest:
    at = _number(row, "Timestamp")
    return TraceRequest(at, _tokens(row, "Request tokens"), _tokens(row, "Response tokens"))


def _mooncake(row: Mapping[str, Any]) -> TraceRequest:
    at = _number(row, "timestamp") / 1000.0
    return TraceRequest(at, _tokens(row, "input_length"), _tokens(row, "output_length"))


_PARSERS = {"azure": _azure, "burstgpt": _burst, "mooncake": _mooncake}


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError(f"{name} {value!r} is not a number") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} {value!r} must be 0 or more")
    return number


def _tokens(row: Mapping[str, Any], name: str) -> int:
    number = _number(row, name)
    if number != int(number):
        raise ValueError(f"{name} {row.get(name)!r} must be a whole number")
    return int(number)
