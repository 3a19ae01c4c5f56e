"""Names of metrics: in PromQL, in an exposition, and in a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

_BUILT_IN = re.compile(r"\$(?:__\w+|\{__\w+\})")
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+(?::\w+)?\})")
_IN_PAGE = re.compile(r"\b(?:jetspec_[a-z_]+[a-z]|sglang:[a-z_]+[a-z])\b")
_NO_METRIC = {"jetspec_sglang", "jetspec_controller"}
"""Python packages whose names look like metrics'."""


def patterns(expression: str) -> set[str]:
    """Regular expressions of the names that an expression selects."""
    plain = _VARIABLE.sub("x", _BUILT_IN.sub("5m", expression))
    return {*_selected(promql_parser.parse(plain))}


def _selected(node: Any) -> Iterator[str]:
    if isinstance(node, promql_parser.VectorSelector):
        if node.name:
            yield re.escape(node.name)
        yield from (m.value for m in node.matchers.matchers if m.name == "__name__")
        return
    for part in ("lhs", "rhs", "expr", "vector_selector"):
        child = getattr(node, part, None)
        if child is not None:
            yield from _selected(child)
    for child in getattr(node, "args", None) or ():
        yield from _selected(child)


def exposed(text: str) -> set[str]:
    """Families and samples of an exposition; a counter without a sample yet counts too."""
    names: set[str] = set()
    for family in text_string_to_metric_families(text):
        names.add(family.name)
        names.update(sample.name for sample in family.samples)
        if family.type == "counter":
            names.add(f"{family.name}_total")
        if family.type == "histogram":
            names.update(f"{family.name}_{part}" for part in ("bucket", "sum", "count"))
    return names


def named_in(page: Path) -> set[str]:
    """Full names of metrics in a page."""
    return {*_IN_PAGE.findall(page.read_text())} - _NO_METRIC
