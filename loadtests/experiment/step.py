"""Time from a load step to the new budget, and what the change costs the requests that run.

Contract: one run of the load generator per metric source, with rates that step down and up; the
budget is read from the engine twice a second, so that a time is exact to about half a second.
`read` works on finished runs alone. I/O: processes, the run's folder.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.load import flush_cache, set_budget
from loadtests.experiment import controlled, generator
from loadtests.experiment.cells import ADAPTIVE, Policy
from loadtests.experiment.sweep import Sweep, drain
from loadtests.figures import number
from loadtests.records import Record
from loadtests.results import SUMMARY, read_records

_SPANS = 4
"""A change is compared with this many spans before it, and as many after it."""

Samples = Sequence[tuple[float, int]]
"""(seconds, budget)."""


@dataclass(frozen=True, slots=True)
class Followed:
    """One step at `at`: the budget before it, the one that it settled at, and how long it took."""

    at: float
    rising_load: bool
    before: int
    settled: int
    first_s: float | None
    settled_s: float | None


def measure(sweep: Sweep, source: str, out: Path, options: Mapping[str, str], port: int) -> None:
    """One run with the controller reading from `source`."""
    server = sweep.server(Policy(ADAPTIVE))
    drain(server)
    flush_cache(server)
    set_budget(server, int(server.jetspec_states()[0]["tiers"][-1]))
    folder = out / source
    shutil.rmtree(folder / "controller", ignore_errors=True)
    with ExitStack() as stack:
        url = ""
        if source == "prometheus":
            program = shutil.which("prometheus")
            if program is None:
                raise CommandError("prometheus is not installed: apt-get install prometheus")
            child = controlled.prometheus(program, server.url, port + 1, folder / "prometheus")
            stack.enter_context(child)
            url = f"http://127.0.0.1:{port + 1}"
        stack.enter_context(
            controlled.controller(
                server.url,
                port,
                folder / "controller",
                prometheus=url,
                policy=sweep.controller_policy,
            )
        )
        generator.run(server.url, folder / "load", {**options, "label": f"steps, {source}"})


def finished(out: Path, source: str) -> bool:
    return (out / source / "load" / SUMMARY).exists()


def read(out: Path, source: str, hold: float) -> dict[str, Any]:
    """What a finished run shows."""
    folder = out / source / "load"
    summary = json.loads((folder / SUMMARY).read_text())
    rows = [json.loads(line) for line in (folder / "server.jsonl").read_text().splitlines()]
    samples = [(one["at"], int(one["budget"])) for one in rows if one["budget"] is not None]
    count = round(summary["config"]["seconds"] / hold)
    followed = [
        found
        for step in range(1, count)
        if (found := follow(samples, step * hold, hold, rising_load=step % 2 == 1)) is not None
    ]
    return {"summary": summary, "steps": followed, "cost": cost(read_records(folder), samples)}


def follow(samples: Samples, at: float, hold: float, *, rising_load: bool) -> Followed | None:
    """How the budget followed the step at `at`; None where it was not seen."""
    before = [budget for t, budget in samples if at - hold / 3 <= t < at]
    after = [(t, budget) for t, budget in samples if at <= t < at + hold]
    late = [budget for t, budget in after if t >= at + 2 * hold / 3]
    if not before or not late:
        return None
    start, settled = statistics.mode(before), statistics.mode(late)
    moved = [t for t, budget in after if (budget < start if rising_load else budget > start)]
    reached = [t for t, budget in after if budget == settled]
    changed = settled < start if rising_load else settled > start
    return Followed(
        at,
        rising_load,
        start,
        settled,
        moved[0] - at if moved else None,
        reached[0] - at if changed and reached else None,
    )


def cost(records: Sequence[Record], samples: Samples) -> dict[str, float | int | None]:
    """The longest wait for tokens around a change of budget, for requests that run during the
    change.

    A change is between two samples. It is compared with the same request's longest wait in equally
    long spans before and after.
    """
    changes = [
        (earlier[0], later[0])
        for earlier, later in itertools.pairwise(samples)
        if earlier[1] != later[1]
    ]
    over, around = [], []
    for record in records:
        for start, end in changes:
            during = _longest(record, start, end)
            shifts = [k * (end - start) for k in range(-_SPANS, _SPANS + 1) if k]
            near = [_longest(record, start + shift, end + shift) for shift in shifts]
            known = [one for one in near if one is not None]
            if during is not None and known:
                over.append(during)
                around.append(statistics.median(known))
    if not over:
        return {"requests": 0, "longest_ms": None, "usual_ms": None}
    return {
        "requests": len(over),
        "longest_ms": 1000 * statistics.median(over),
        "usual_ms": 1000 * statistics.median(around),
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A row for each source and direction: p50 and p95."""
    rows = [["metrics from", "load", "steps", "budgets", "first change s: p50", "p95",
             "settled s: p50", "p95", "not followed"]]  # fmt: skip
    for source, result in found.items():
        for rising in (True, False):
            steps = [one for one in result["steps"] if one.rising_load == rising]
            first = [one.first_s for one in steps if one.first_s is not None]
            settled = [one.settled_s for one in steps if one.settled_s is not None]
            rows.append([
                source, "rises" if rising else "falls", str(len(steps)), _budgets(steps),
                *_percentiles(first), *_percentiles(settled), str(len(steps) - len(first)),
            ])  # fmt: skip
    return rows


def cost_note(source: str, result: Mapping[str, Any]) -> str:
    found, summary = result["cost"], result["summary"]
    return (
        f"{source}: {summary['completed']} requests answered, {summary['failed']} failed. "
        f"{found['requests']} times a request ran while the budget changed. Its longest wait for tokens "
        f"was {number(found['longest_ms'])} ms (median) in the half second of the change, and "
        f"{number(found['usual_ms'])} ms in the half seconds before and after it."
    )


def _longest(record: Record, start: float, end: float) -> float | None:
    gaps = [
        b - a
        for (a, _), (b, _) in zip(record.progress, record.progress[1:], strict=False)
        if start <= b <= end
    ]
    return max(gaps) if gaps else None


def _percentiles(values: Sequence[float]) -> list[str]:
    if not values:
        return ["-", "-"]
    return [number(float(one)) for one in np.percentile(values, (50, 95))]


def _budgets(steps: Sequence[Followed]) -> str:
    if not steps:
        return "-"
    return (
        f"{statistics.mode(s.before for s in steps)} to {statistics.mode(s.settled for s in steps)}"
    )
