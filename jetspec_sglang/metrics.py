"""`EngineMetrics`: the `jetspec_` series on SGLang's own `/metrics`.

Created in the scheduler process when SGLang creates its metrics collector (so only with
`--enable-metrics`, and only on the rank that reports), with SGLang's labels. `metric_list` lists
the metrics.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jetspec_sglang.metric_list import (
    ACCEPTED_NODE_BUDGET,
    BUDGET_CHANGES,
    INFO,
    LAST_ROUND,
    METRICS,
    REQUEST_ROUNDS,
    ROUND_COST,
    ROUND_SECONDS,
    ROUNDS,
    TOKENS,
    TREE_BUDGET,
    TREE_BUDGET_REQUESTED,
    VERIFY_ROWS,
    Metric,
)

FLUSH_SECONDS = 0.5
SOURCES = ("api",)
"""Where changes of the plan come from."""

_engine: EngineMetrics | None = None


PHASES = ("scheduler", "draft", "tree", "verify", "commit")


@dataclass(frozen=True, slots=True)
class Round:
    """One draft + verify + commit of the running batch.

    rows: the rows of the target's GEMMs, requests times nodes. tokens: committed, bonus included.
    seconds: by phase; the draft phase is 0 at budget 1.
    """

    budget: int
    requests: int
    rows: int
    tokens: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


def collector_created(result: None, collector: Any, *args: Any, **kwargs: Any) -> None:
    """AFTER hook of SGLang's scheduler collector: create ours with its labels, once."""
    global _engine
    if _engine is None:
        _engine = EngineMetrics(dict(collector.labels))


def stats_logged(result: None, collector: Any, *args: Any, **kwargs: Any) -> None:
    """AFTER hook of SGLang's own writes, which also happen when the server becomes idle. So the
    counts of the last rounds are written before the next request."""
    if _engine is not None:
        _engine.flush()


def engine_metrics() -> EngineMetrics | None:
    """This process's metrics, None when SGLang runs without them."""
    return _engine


class EngineMetrics:
    """Counters of rounds, tokens, seconds and accepted ranks, each by the round's budget."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels
        self._made = {metric: _create(metric, tuple(labels)) for metric in METRICS}
        for source in SOURCES:  # at 0 from the start, so that a rate sees the first change
            self._of(BUDGET_CHANGES, source=source)
        self._pending: dict[int, _Pending] = {}
        self._costs: dict[int, float] = {}
        self._flushed = time.monotonic()

    def describe(self, info: dict[str, str]) -> None:
        """Set the info series; `info` has exactly the keys `INFO_LABELS`."""
        self._of(INFO, **info).set(1)

    def requested(self, budget: int) -> None:
        self._of(TREE_BUDGET_REQUESTED).set(budget)

    def changed(self, source: str) -> None:
        self._of(BUDGET_CHANGES, source=source).inc()

    def cost(self, rows: int, seconds: float) -> None:
        """Seconds of a round at a power-of-two number of rows; written with the next `flush`."""
        self._costs[rows] = seconds

    def record(self, round_: Round, ranks: Iterable[int]) -> None:
        """Count one round; `ranks` are the accepted nodes' ranks, root left out.

        Counts are kept here and written every `FLUSH_SECONDS`: a write is a memory-mapped
        file operation and a round can be short.
        """
        pending = self._pending.setdefault(round_.budget, _Pending())
        pending.add(round_, ranks)
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what was counted since the last time."""
        for number, pending in self._pending.items():
            budget = str(number)
            self._of(TREE_BUDGET).set(number)
            self._of(ROUNDS, budget=budget).inc(pending.rounds)
            self._of(REQUEST_ROUNDS, budget=budget).inc(pending.request_rounds)
            self._of(TOKENS, budget=budget).inc(pending.tokens)
            self._of(VERIFY_ROWS).inc(pending.rows)
            for phase, seconds in pending.seconds.items():
                self._of(ROUND_SECONDS, budget=budget, phase=phase).inc(seconds)
            needed = {rank + 1: count for rank, count in pending.ranks.items()}
            observe_many(self._of(ACCEPTED_NODE_BUDGET, budget=budget), needed)
        for rows, seconds in self._costs.items():
            self._of(ROUND_COST, rows=str(rows)).set(seconds)
        self._costs.clear()
        if self._pending:
            self._of(LAST_ROUND).set(time.time())
        self._pending.clear()
        self._flushed = time.monotonic()

    def _of(self, metric: Metric, **labels: str) -> Any:
        return self._made[metric].labels(**self._labels, **labels)


def observe_many(histogram: Any, counts: Mapping[int, int]) -> None:
    """`histogram.observe(value)` `count` times for each item of `counts`, with one write a bucket
    and one of the sum. The client library has no such call; its fields are checked by a test."""
    bounds = histogram._upper_bounds
    by_bucket: dict[int, int] = {}
    for value, count in counts.items():
        place = bisect_left(bounds, value)
        by_bucket[place] = by_bucket.get(place, 0) + count
    if by_bucket:
        histogram._sum.inc(sum(value * count for value, count in counts.items()))
    for place, count in by_bucket.items():
        histogram._buckets[place].inc(count)


def _create(metric: Metric, labels: tuple[str, ...]) -> Any:
    # SGLang sets PROMETHEUS_MULTIPROC_DIR before it creates its collector; the client library
    # reads it when first imported.
    from prometheus_client import Counter, Gauge, Histogram

    names = [*labels, *metric.labels]
    match metric.kind:
        case "gauge":
            return Gauge(metric.name, metric.text, names, multiprocess_mode="mostrecent")
        case "counter":
            return Counter(metric.name, metric.text, names)
        case "histogram":
            return Histogram(metric.name, metric.text, names, buckets=metric.buckets)


class _Pending:
    """Counts of one budget since the last flush."""

    __slots__ = ("ranks", "request_rounds", "rounds", "rows", "seconds", "tokens")

    def __init__(self) -> None:
        self.rounds = self.request_rounds = self.tokens = self.rows = 0
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.ranks: dict[int, int] = {}

    def add(self, round_: Round, ranks: Iterable[int]) -> None:
        self.rounds += 1
        self.request_rounds += round_.requests
        self.tokens += round_.tokens
        self.rows += round_.rows
        for phase, seconds in round_.seconds.items():
            self.seconds[phase] += seconds
        for rank in ranks:
            self.ranks[rank] = self.ranks.get(rank, 0) + 1
