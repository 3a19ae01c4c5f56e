"""`EngineMetrics`: the `jetspec_` series on SGLang's own `/metrics`.

Created in the scheduler process when SGLang creates its metrics collector (so only with
`--enable-metrics`, and only on the rank that reports), with SGLang's labels. Names and labels
are a contract: dashboards, alerts and the controller are built on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from jetspec_sglang.rounds import PHASES, Round

RANK_BUCKETS = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FLUSH_SECONDS = 0.5

_engine: EngineMetrics | None = None


def collector_created(result: None, collector: Any, *args: Any, **kwargs: Any) -> None:
    """AFTER hook of SGLang's scheduler collector: create ours with its labels, once."""
    global _engine
    if _engine is None:
        _engine = EngineMetrics(dict(collector.labels))


def stats_logged(result: None, collector: Any, *args: Any, **kwargs: Any) -> None:
    """AFTER hook of SGLang's own writes, which also happen when the server goes idle: the last
    rounds before a pause do not wait for the next request."""
    if _engine is not None:
        _engine.flush()


def engine_metrics() -> EngineMetrics | None:
    """This process's metrics, None when SGLang runs without them."""
    return _engine


class EngineMetrics:
    """Counters of rounds, tokens, seconds and accepted ranks, each by the round's budget."""

    def __init__(self, labels: dict[str, str]) -> None:
        # SGLang sets PROMETHEUS_MULTIPROC_DIR before it creates its collector; the client
        # library reads it when first imported.
        from prometheus_client import Counter, Gauge, Histogram

        self._labels = labels
        names = list(labels)

        def gauge(name: str, text: str, *extra: str) -> Gauge:
            return Gauge(f"jetspec_{name}", text, [*names, *extra], multiprocess_mode="mostrecent")

        def counter(name: str, text: str, *extra: str) -> Counter:
            return Counter(f"jetspec_{name}", text, [*names, *extra])

        self._tree_budget = gauge("tree_budget", "Budget of the last round.")
        self._requested = gauge("tree_budget_requested", "Uniform budget asked for.")
        self._rounds = counter("rounds", "Rounds run.", "budget")
        self._request_rounds = counter("request_rounds", "Requests times rounds.", "budget")
        self._tokens = counter("tokens", "Tokens committed, bonus included.", "budget")
        self._seconds = counter("round_seconds", "Seconds in rounds.", "budget", "phase")
        self._ranks = Histogram(
            "jetspec_accepted_node_budget",
            "Smallest budget that would have held an accepted node (rank + 1).",
            [*names, "budget"],
            buckets=RANK_BUCKETS,
        )
        self._verify_rows = counter("verify_rows", "Rows given to the target.")
        self._cost = gauge("round_cost_seconds", "Seconds of a round by rows (EMA).", "rows")
        self._changes = counter("budget_changes", "Changes of the budget plan.", "source")
        self._last_round = gauge("last_round_timestamp_seconds", "Unix time of the last round.")
        self._info = gauge("info", "What this engine runs.", *INFO_LABELS)
        self._pending: dict[int, _Pending] = {}
        self._flushed = time.monotonic()

    def describe(self, info: dict[str, str]) -> None:
        """Set the info series; `info` has exactly the keys `INFO_LABELS`."""
        self._info.labels(**self._labels, **info).set(1)

    def requested(self, budget: int) -> None:
        self._requested.labels(**self._labels).set(budget)

    def changed(self, source: str) -> None:
        self._changes.labels(**self._labels, source=source).inc()

    def cost(self, rows: int, seconds: float) -> None:
        """Seconds of a round at a power-of-two number of rows."""
        self._cost.labels(**self._labels, rows=str(rows)).set(seconds)

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
        for budget, pending in self._pending.items():
            by_budget = {**self._labels, "budget": str(budget)}
            self._tree_budget.labels(**self._labels).set(budget)
            self._rounds.labels(**by_budget).inc(pending.rounds)
            self._request_rounds.labels(**by_budget).inc(pending.request_rounds)
            self._tokens.labels(**by_budget).inc(pending.tokens)
            self._verify_rows.labels(**self._labels).inc(pending.rows)
            for phase, seconds in pending.seconds.items():
                self._seconds.labels(**by_budget, phase=phase).inc(seconds)
            histogram = self._ranks.labels(**by_budget)
            for rank, count in pending.ranks.items():
                for _ in range(count):
                    histogram.observe(rank + 1)
        if self._pending:
            self._last_round.labels(**self._labels).set(time.time())
        self._pending.clear()
        self._flushed = time.monotonic()


INFO_LABELS = ("version", "sglang", "head", "causal", "rule", "tiers", "width", "block_size")


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
