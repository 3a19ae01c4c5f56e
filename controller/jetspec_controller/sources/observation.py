"""Converts samples to the core's observation of one server. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetspec_controller.core import (
    RANK_EDGES,
    BudgetCounters,
    CostCurve,
    CostPoint,
    CostSource,
    Fault,
    LatencyPercentiles,
    RoundCounters,
    Signal,
    SourceError,
    TargetObservation,
)
from jetspec_controller.sources.series import (
    ACCEPTED_BUCKET,
    BUDGET_COUNTERS,
    FINISHED,
    GENERATED,
    KV_TOKENS,
    LAST_ROUND,
    ROUND_COST,
    ROUND_SECONDS,
    RUNNING,
    TOKEN_USAGE,
    TPOT_BUCKET,
    TTFT_BUCKET,
    WAITING,
    Snapshot,
)
from jetspec_controller.sources.window import Window

READ_SIGNALS = (Signal.LOAD, Signal.ROUNDS, Signal.COST, Signal.ARRIVALS, Signal.LATENCY)


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Requests of one server, per data-parallel rank; `age_s` by the server's own clock."""

    running: float | None
    waiting: float | None
    token_usage: float | None = None
    kv_tokens: float | None = None
    max_running: float | None = None
    producer_timestamp: float | None = None
    ticks_when_idle: bool = False
    age_s: float = 0.0


def unusable(target: str, now: float, fault: Fault, detail: str) -> TargetObservation:
    """An observation without any readable input, for one reason."""
    errors = tuple(SourceError(signal, fault, detail) for signal in READ_SIGNALS)
    return TargetObservation(target, now, errors=errors)


def build(
    target: str,
    now: float,
    snapshot: Snapshot,
    window: Window,
    *,
    age_s: float,
    percentile: float,
    load: LoadReading | None = None,
    file_cost: CostCurve | None = None,
    errors: Sequence[SourceError] = (),
) -> TargetObservation:
    """Everything one scrape says; without any sample, nothing is taken from the window either. `load` replaces the scrape's own load gauges; values are passed
    on as they are (NaN included), a series that is not there becomes an error of its signal.
    """
    found = list(errors)
    ranks = snapshot.ranks
    if load is None:
        load = _gauge_load(snapshot, ranks, age_s)
    counters, absent = _counters(snapshot)
    cost = _cost_gauges(snapshot, age_s) or file_cost
    for signal, missing in (
        (Signal.LOAD, RUNNING if load.running is None else None),
        (Signal.ROUNDS, absent),
        (Signal.COST, ROUND_COST if cost is None else None),
        (Signal.LATENCY, _absent_latency(snapshot)),
    ):
        if missing is not None and all(error.signal is not signal for error in found):
            found.append(SourceError(signal, Fault.MISSING, missing))
    if not snapshot.samples:
        window = Window(0.0)
    arrivals, tokens = window.arrival_rate, window.tokens_per_second
    return TargetObservation(
        target,
        now,
        running_requests=load.running,
        waiting_requests=load.waiting,
        max_running_requests=load.max_running,
        token_usage=load.token_usage,
        kv_tokens=load.kv_tokens,
        arrival_rate=None if arrivals is None else arrivals / ranks,
        mean_output_tokens=window.mean_output_tokens,
        tokens_per_second=None if tokens is None else tokens / ranks,
        producer_timestamp=load.producer_timestamp,
        producer_ticks_when_idle=load.ticks_when_idle,
        counters=counters,
        cost=cost,
        latency=LatencyPercentiles(
            percentile,
            tpot_s=window.percentile("tpot", percentile),
            ttft_s=window.percentile("ttft", percentile),
        ),
        ages=(
            (Signal.LOAD, load.age_s),
            (Signal.ROUNDS, age_s),
            (Signal.COST, age_s),
            (Signal.ARRIVALS, age_s),
            (Signal.LATENCY, age_s),
        ),
        errors=tuple(found),
    )


def _absent_latency(snapshot: Snapshot) -> str | None:
    """The latency histogram that is not there although requests have finished."""
    finished, generated = snapshot.total(FINISHED) or 0.0, snapshot.total(GENERATED) or 0.0
    if finished > 0 and TTFT_BUCKET not in snapshot.samples:
        return TTFT_BUCKET
    return TPOT_BUCKET if generated > finished and TPOT_BUCKET not in snapshot.samples else None


def _gauge_load(snapshot: Snapshot, ranks: int, age_s: float) -> LoadReading:
    def mean(name: str) -> float | None:
        total = snapshot.total(name)
        return None if total is None else total / ranks

    stamps = [value for _, value in snapshot.of(LAST_ROUND)]
    return LoadReading(
        running=mean(RUNNING),
        waiting=mean(WAITING),
        token_usage=mean(TOKEN_USAGE),
        kv_tokens=mean(KV_TOKENS) or None,
        producer_timestamp=min(stamps) if stamps else None,
        age_s=age_s,
    )


def _counters(snapshot: Snapshot) -> tuple[RoundCounters | None, str | None]:
    """The round counters by budget, or the name of the series that is not there."""
    totals: dict[int, list[float]] = {}
    for place, name in enumerate((*BUDGET_COUNTERS, ROUND_SECONDS)):
        for labels, value in snapshot.of(name):
            row = totals.setdefault(int(labels["budget"]), [0.0] * 4)
            row[place] += value
    if not totals:
        return None, BUDGET_COUNTERS[0]
    accepted: dict[int, dict[int, float]] = {}
    for labels, value in snapshot.of(ACCEPTED_BUCKET):
        edge = float(labels["le"])
        if edge.is_integer():
            held = accepted.setdefault(int(labels["budget"]), {})
            held[int(edge)] = held.get(int(edge), 0.0) + value
    if not accepted and any(budget > 1 and row[1] > 0 for budget, row in totals.items()):
        return None, ACCEPTED_BUCKET
    edges = tuple(sorted({edge for held in accepted.values() for edge in held})) or RANK_EDGES
    by_budget = tuple(
        BudgetCounters(
            budget,
            rounds=row[0],
            request_rounds=row[1],
            tokens=row[2],
            seconds=row[3],
            accepted=tuple(accepted.get(budget, {}).get(edge, 0.0) for edge in edges),
        )
        for budget, row in sorted(totals.items())
    )
    return RoundCounters(by_budget, edges), None


def _cost_gauges(snapshot: Snapshot, age_s: float) -> CostCurve | None:
    """Mean over data-parallel ranks of the seconds a round takes, by rows."""
    seconds: dict[float, list[float]] = {}
    for labels, value in snapshot.of(ROUND_COST):
        seconds.setdefault(float(labels["rows"]), []).append(value)
    if not seconds:
        return None
    points = (CostPoint(rows, sum(values) / len(values), age_s) for rows, values in seconds.items())
    return CostCurve(tuple(sorted(points, key=lambda point: point.rows)), CostSource.GAUGES)
