"""Names of metrics in an exposition and in a page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

_IN_PAGE = re.compile(r"\b(?:jetspec_[a-z_]+[a-z]|sglang:[a-z_]+[a-z])\b")
_NO_METRIC = {"jetspec_sglang", "jetspec_controller"}
"""Python packages whose names look like metrics'."""


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
