"""Checks the inputs of one observation: every unusable input gets its own fault. No I/O.

The load is needed for every decision; anything else that is missing only narrows it. An input that
is missing never counts as zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.enums import Fault, Reason, Signal
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import (
    BudgetCounters,
    CostCurve,
    RoundCounters,
    SourceError,
    TargetObservation,
)

RESTART_TOLERANCE_S = 0.5

LOAD_REASONS = {
    Fault.MISSING: Reason.LOAD_MISSING,
    Fault.STALE: Reason.LOAD_STALE,
    Fault.NAN: Reason.LOAD_NAN,
    Fault.RESET: Reason.COUNTER_RESET,
    Fault.RESTARTED: Reason.SERVER_RESTARTED,
    Fault.FROZEN: Reason.PRODUCER_FROZEN,
    Fault.DOWN: Reason.SERVER_DOWN,
    Fault.TIMEOUT: Reason.SOURCE_TIMEOUT,
    Fault.HTTP: Reason.SOURCE_HTTP,
    Fault.UNAUTHORISED: Reason.SOURCE_UNAUTHORISED,
    Fault.PARSE: Reason.SOURCE_PARSE,
    Fault.EMPTY: Reason.SOURCE_EMPTY,
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The usable part of an observation."""

    blocked: Reason | None  # why the load cannot be used; None when it can
    faults: tuple[SourceError, ...]
    restarted: bool
    fresh: tuple[BudgetCounters, ...]  # counts since the last scrape
    first: bool  # `fresh` are the totals since the server's start
    counters: RoundCounters | None  # the new baseline
    cost: CostCurve | None
    producer_moved_at: float | None


def check(
    config: PolicyConfig, observation: TargetObservation, state: TargetState, now: float
) -> Inputs:
    """Sorts an observation into what can be used and what cannot, and why."""
    faults = list(observation.errors)
    ages = dict(observation.ages)
    moved_at = _producer_moved_at(observation, state, now)
    restarted = _differs(observation.started_at, state.started_at)

    def late(signal: Signal) -> bool:
        age = max(ages.get(signal, 0.0), now - observation.observed_at)
        if age > config.max_age_s:
            faults.append(SourceError(signal, Fault.STALE, f"{age:.1f} s old"))
        return age > config.max_age_s

    load_fault = next((e.fault for e in faults if e.signal is Signal.LOAD), None)
    if load_fault is None:
        load_fault = _load_fault(observation)
        if load_fault is not None:
            faults.append(SourceError(Signal.LOAD, load_fault))
        elif late(Signal.LOAD):
            load_fault = Fault.STALE
        elif moved_at is not None and now - moved_at > config.max_age_s:
            load_fault = Fault.FROZEN
            faults.append(SourceError(Signal.LOAD, load_fault, f"since {now - moved_at:.1f} s"))

    counters = observation.counters
    fresh: tuple[BudgetCounters, ...] = ()
    first = state.counters is None or restarted
    bad = None if counters is None else _counter_fault(counters)
    if bad is not None:
        faults.append(SourceError(Signal.ROUNDS, bad))
        counters = None
    if counters is not None:
        difference = counters.by_budget if first else _difference(counters, state.counters)
        if difference is None:
            faults.append(SourceError(Signal.ROUNDS, Fault.RESET))
            load_fault = load_fault or Fault.RESET
        else:
            fresh = difference
    if restarted:
        faults.append(SourceError(Signal.BUDGET, Fault.RESTARTED))
    for name in ("arrival_rate", "mean_output_tokens", "token_usage", "kv_tokens"):
        value = getattr(observation, name)
        if value is not None and not _count(value):
            signal = Signal.LOAD if name in ("token_usage", "kv_tokens") else Signal.ARRIVALS
            faults.append(SourceError(signal, Fault.NAN, name))
    return Inputs(
        None if load_fault is None else LOAD_REASONS[load_fault],
        tuple(faults),
        restarted,
        fresh,
        first,
        counters if counters is not None else (None if restarted else state.counters),
        _usable_cost(observation.cost),
        moved_at,
    )


def number(value: float | None) -> float | None:
    """The value if it is a finite number of at least zero, else None."""
    return value if value is not None and _count(value) else None


def _load_fault(observation: TargetObservation) -> Fault | None:
    for value in (observation.running_requests, observation.waiting_requests):
        if value is None:
            return Fault.MISSING
        if not _count(value):
            return Fault.NAN
    return None


def _producer_moved_at(
    observation: TargetObservation, state: TargetState, now: float
) -> float | None:
    """The time when the server's own timestamp last changed, on the controller's clock. So the
    clocks may differ by any amount. A timestamp that only rounds change counts as changing while
    the server is idle.
    """
    stamp = observation.producer_timestamp
    if stamp is None or not math.isfinite(stamp):
        return None
    idle = observation.running_requests == 0 and observation.waiting_requests == 0
    moved = stamp != state.producer_timestamp
    if (
        moved
        or state.producer_moved_at is None
        or (idle and not observation.producer_ticks_when_idle)
    ):
        return now
    return state.producer_moved_at


def _difference(new: RoundCounters, old: RoundCounters | None) -> tuple[BudgetCounters, ...] | None:
    """Counts between two scrapes, None when a counter went down or a budget vanished."""
    if old is None or new.edges != old.edges:
        return None
    before = {c.budget: c for c in old.by_budget}
    if not before.keys() <= {c.budget for c in new.by_budget}:
        return None
    out = []
    for c in new.by_budget:
        b = before.get(c.budget)
        if b is None:
            out.append(c)
            continue
        d = BudgetCounters(
            c.budget,
            c.rounds - b.rounds,
            c.request_rounds - b.request_rounds,
            c.tokens - b.tokens,
            c.seconds - b.seconds,
            tuple(x - y for x, y in zip(c.accepted, b.accepted, strict=True)),
        )
        if any(v < 0 for v in _values(d)):
            return None
        if d.rounds > 0:
            out.append(d)
    return tuple(out)


def _usable_cost(curve: CostCurve | None) -> CostCurve | None:
    if curve is None:
        return None
    points = tuple(
        sorted(
            (p for p in curve.points if _positive(p.rows) and _positive(p.seconds)),
            key=lambda p: p.rows,
        )
    )
    return CostCurve(points, curve.source) if len(points) >= 2 else None


def _values(counts: BudgetCounters) -> Iterator[float]:
    yield from (counts.rounds, counts.request_rounds, counts.tokens, counts.seconds)
    yield from counts.accepted


def _counter_fault(counters: RoundCounters) -> Fault | None:
    edges = counters.edges
    ascending = all(a < b for a, b in pairwise(edges))
    if not edges or not ascending or edges[0] < 2:
        return Fault.PARSE
    if any(len(c.accepted) != len(edges) for c in counters.by_budget):
        return Fault.PARSE
    if not all(_count(v) for c in counters.by_budget for v in _values(c)):
        return Fault.NAN
    return None


def _count(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _differs(new: float | None, old: float | None) -> bool:
    return new is not None and old is not None and abs(new - old) > RESTART_TOLERANCE_S
