"""Limits on the figures of a summary, such as `p99_ttft_ms<=500`. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FORM = re.compile(r"([a-z][a-z0-9_]*)\s*(<=|>=|<|>)\s*(\S+)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """`metric` is a key of the summary."""

    metric: str
    comparison: str
    limit: float

    def __str__(self) -> str:
        return f"{self.metric}{self.comparison}{self.limit:g}"


def parse_threshold(text: str) -> Threshold:
    """ValueError for what is no `metric<=number`."""
    found = _FORM.fullmatch(text.strip())
    try:
        limit = float(found.group(3)) if found else math.nan
    except ValueError:
        limit = math.nan
    if found is None or not math.isfinite(limit):
        raise ValueError(f"{text!r}: must be a metric, one of <= >= < >, and a number")
    return Threshold(found.group(1), found.group(2), limit)


def broken(thresholds: Sequence[Threshold], summary: Mapping[str, Any]) -> list[str]:
    """One line for each limit that is not met. A figure that was not measured meets no limit."""
    lines = []
    for one in thresholds:
        value = summary.get(one.metric)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            lines.append(f"{one}: {one.metric} was not measured")
        elif not _COMPARE[one.comparison](value, one.limit):
            lines.append(f"{one}: {one.metric} is {value:.4g}")
    return lines
