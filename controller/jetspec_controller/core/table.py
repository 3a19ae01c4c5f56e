"""A whole table {min running batch → budget} for the engine to follow within a round. No I/O.

The entries depend only on the curves, not on the load, so a table rarely changes. The engine picks
the entry for its own batch. Entries fall as the batch grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jetspec_controller.core.budgets import at_most
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.enums import Clamp, Reason
from jetspec_controller.core.model import SpeedModel, within_objectives
from jetspec_controller.core.types import LatencyPercentiles, Table

AROUND = 1.5
"""A probe covers the batches within this factor of the one it is for."""


MOST_BATCH = 512.0
"""No entry starts beyond this batch."""


def lookup(table: Table, batch: float) -> int:
    """The entry for ``batch`` running requests; the first entry below the table's first batch."""
    budget = table[0][1]
    for start, entry in table:
        if start > batch:
            break
        budget = entry
    return budget


def fit(table: Sequence[tuple[int, int]], allowed: Sequence[int]) -> Table:
    """A foreign table, with each budget changed to an allowed tier, from batch 1 on."""
    entries = [(batch, at_most(allowed, budget)) for batch, budget in sorted(table)]
    if entries[0][0] > 1:
        entries.insert(0, (1, entries[0][1]))
    return compress(entries)


def largest(limit: float | None) -> float:
    """The largest batch with an entry of its own, by the server's limit of running requests."""
    return min(limit or MOST_BATCH, MOST_BATCH)


def grid(limit: float) -> list[int]:
    """Batches at which entries may start: each one up to 8, then two per octave, up to
    ``limit``."""
    starts = list(range(1, 9))
    while starts[-1] < limit:
        octave = 2 ** int(math.log2(starts[-1]))
        starts.append(starts[-1] + octave // 2)
    return [s for s in starts if s <= max(limit, 1)]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of table entries at one tick, in addition to the configuration."""

    ceiling: int | None  # largest budget the KV cache has room for; None: all
    kv_full: bool  # no entry may rise
    settling: bool  # the last change is too recent for a rise


@dataclass(frozen=True, slots=True)
class Computed:
    """The next table; why no more entries change, or which limit makes them change; the limits that
    applied."""

    table: Table
    reason: Reason
    clamps: tuple[Clamp, ...]


def compute(
    config: PolicyConfig,
    speed: SpeedModel,
    batch: float,
    limit: float,
    in_force: Table,
    latency: LatencyPercentiles | None,
    current: int,
    limits: Limits,
) -> Computed:
    """The next table. Each entry changes like a uniform budget: only beyond the tolerance band.
    When it may rise, it rises a few tiers at most, and only to measured budgets.
    """
    starts = grid(limit)
    middles = np.array(
        [(a + b - 1) / 2 for a, b in zip(starts, [*starts[1:], starts[-1] + 1], strict=True)]
    )
    round_s = speed.round_s(middles[:, None])
    token_s = round_s / speed.tau
    usable = within_objectives(config, speed, round_s, latency, batch, current)
    budgets = speed.budgets.astype(int).tolist()
    places = np.arange(len(budgets))
    fits = speed.budgets <= (budgets[-1] if limits.ceiling is None else limits.ceiling)
    fits[0] = True
    measured = sum(b <= speed.measured for b in budgets)
    pivot = max(i for i, s in enumerate(starts) if s <= max(batch, 1))
    rises = not (limits.kv_full or limits.settling)
    chosen: list[int] = []
    clamps: set[Clamp] = {Clamp.KV_PRESSURE} if limits.kv_full else set()
    forced, waits = set(clamps), {Reason.KV_PRESSURE} if limits.kv_full else set()

    def best(open_to: NDArray[np.bool_], row: int) -> int:
        return int(np.argmin(np.where(open_to, token_s[row], np.inf)))

    for row, start in enumerate(starts):
        here = _index(budgets, lookup(in_force, start))
        seen = places < max(measured, here + 1)
        goal = best(usable[row] & fits & seen, row) if np.any(usable[row] & fits & seen) else 0
        if best(fits & seen, row) != goal:
            clamps.add(Clamp.OBJECTIVE)
        if best(usable[row] & seen, row) != goal:
            clamps.add(Clamp.KV_PRESSURE)
        if row == pivot and best(usable[row] & fits, row) > goal:
            clamps.add(Clamp.EVIDENCE)
        if not usable[row, here]:
            forced.add(Clamp.OBJECTIVE)
        elif not fits[here]:
            forced.add(Clamp.KV_PRESSURE)
        gain = 1.0 - token_s[row, goal] / token_s[row, here]
        tolerance = config.tolerance_down if goal < here else config.tolerance_up
        to = here
        if not (usable[row, here] and fits[here]) or gain > tolerance:
            to = max(goal, here - config.step_down)
            if goal > here:
                to = min(goal, here + config.step_up) if rises else here
                waits |= {Reason.DWELL} if limits.settling and not limits.kv_full else set()
            if to != goal and row == pivot and (rises or goal < here):
                clamps.add(Clamp.STEP_UP if goal > here else Clamp.STEP_DOWN)
        elif goal != here and row == pivot:
            waits.add(Reason.WITHIN_TOLERANCE)
        chosen.append(to)
    falling = _falling(chosen, pivot)
    table = compress([(s, budgets[i]) for s, i in zip(starts, falling, strict=True)])
    return Computed(
        table,
        _reason(table != in_force, forced, waits),
        tuple(sorted(clamps)),
    )


def _reason(moves: bool, forced: Set[Clamp], waits: Set[Reason]) -> Reason:
    if moves:
        limits = {Clamp.OBJECTIVE: Reason.OBJECTIVE, Clamp.KV_PRESSURE: Reason.KV_PRESSURE}
        return next((r for c, r in limits.items() if c in forced), Reason.TABLE_UPDATE)
    order = (Reason.KV_PRESSURE, Reason.DWELL, Reason.WITHIN_TOLERANCE)
    return next((r for r in order if r in waits), Reason.OPTIMAL)


def _falling(chosen: Sequence[int], pivot: int) -> list[int]:
    """Entries that fall as the batch grows. The entry of the present batch is kept, because it was
    measured."""
    out = list(chosen)
    for row in range(pivot + 1, len(out)):
        out[row] = min(out[row], out[row - 1])
    for row in range(pivot - 1, -1, -1):
        out[row] = max(out[row], out[row + 1])
    return out


def with_entry(entries: Table, batch: float, budget: int, limit: float) -> Table:
    """The table with another budget around ``batch``, within a factor of ``AROUND``."""
    expanded = [
        (start, budget if 1 / AROUND < start / batch < AROUND else lookup(entries, start))
        for start in grid(limit)
    ]
    return compress(expanded)


def compress(entries: Sequence[tuple[int, int]]) -> Table:
    """Drops every entry that repeats the one before it."""
    kept: list[tuple[int, int]] = []
    for batch, budget in entries:
        if not kept or kept[-1][1] != budget:
            kept.append((batch, budget))
    return tuple(kept)


def _index(budgets: Sequence[int], budget: int) -> int:
    return max((i for i, b in enumerate(budgets) if b <= budget), default=0)
