"""The server's own figures during a run: budget, load and tokens over time.

Contract: parsing is pure; `from_prometheus` asks a Prometheus. Only the few series that a report
shows are looked at, line by line: a full parse of SGLang's page costs more CPU than the request.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

BUDGET = "jetspec_tree_budget"
_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)")
_SUMMED = {
    "running": "sglang:num_running_reqs",
    "waiting": "sglang:num_queue_reqs",
    "tokens": "jetspec_tokens_total",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures of all ranks together at `at` seconds after the start; None where not exported."""

    at: float
    budget: float | None = None
    running: float | None = None
    waiting: float | None = None
    tokens: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_sample(text: str, at: float) -> Sample:
    """One `/metrics` page. Series that are not there, or are NaN, are None."""
    values: dict[str, list[float]] = {}
    wanted = {BUDGET, *_SUMMED.values()}
    for line in text.splitlines():
        found = _LINE.match(line)
        if found and found.group(1) in wanted:
            try:
                number = float(found.group(2))
            except ValueError:
                continue
            if number == number:
                values.setdefault(found.group(1), []).append(number)
    sums = {key: sum(values[name]) if name in values else None for key, name in _SUMMED.items()}
    budgets = values.get(BUDGET)
    return Sample(at, budget=max(budgets) if budgets else None, **sums)


def budget_at(samples: Sequence[Sample], at: float) -> int | None:
    """The budget of the last sample up to `at`."""
    known = [one for one in samples if one.budget is not None]
    place = bisect_right([one.at for one in known], at)
    budget = known[place - 1].budget if place else None
    return None if budget is None else int(budget)


def from_prometheus(
    url: str, selector: str, start: float, end: float, step: float = 1.0
) -> list[Sample]:
    """The budget between two Unix times, as Prometheus has it. OSError, ValueError."""
    query = f"max({BUDGET}{{{selector}}})"
    parameters = {"query": query, "start": start, "end": end, "step": step}
    address = f"{url.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        body = json.load(answer)
    if body.get("status") != "success":
        raise ValueError(f"{url}: {body.get('error', 'no result')}")
    return list(_samples(body["data"]["result"], start))


def _samples(result: Iterable[Mapping[str, Any]], start: float) -> Iterable[Sample]:
    for series in result:
        for at, value in series["values"]:
            yield Sample(float(at) - start, budget=float(value))
