"""Rates and percentiles of one server over a span of scrapes. No I/O.

Only the few totals that rates need are kept, one entry per scrape, so memory is bounded by `span_s
/ MIN_STEP_S` entries per server. Decode rounds are not rated here: the core takes their differences
itself.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from jetspec_controller.sources.series import (
    ARRIVALS,
    FINISHED,
    GENERATED,
    GENERATING_ENDPOINTS,
    TPOT_BUCKET,
    TTFT_BUCKET,
    Snapshot,
)

RATE_SPAN_S = 10.0
"""A rate shows the present. Lengths and percentiles need the requests of the whole window."""

MIN_STEP_S = 0.5
MIN_FINISHED = 5.0
TOKENS = "jetspec_tokens_total"

Buckets = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of one scrape, summed over ranks and labels; None where there is no series."""

    at: float
    arrivals: float | None
    finished: float | None
    generated: float | None
    tokens: float | None
    ttft: Buckets
    tpot: Buckets

    @classmethod
    def of(cls, snapshot: Snapshot) -> Totals:
        arrivals = [
            value
            for labels, value in snapshot.of(ARRIVALS)
            if labels.get("endpoint") in GENERATING_ENDPOINTS
        ]
        seen = snapshot.total(ARRIVALS) is not None
        return cls(
            snapshot.at,
            sum(arrivals) if seen else None,
            snapshot.total(FINISHED),
            snapshot.total(GENERATED),
            snapshot.total(TOKENS),
            _buckets(snapshot, TTFT_BUCKET),
            _buckets(snapshot, TPOT_BUCKET),
        )


class Window:
    """The scrapes of the last `span_s` seconds; a counter that fell starts it over."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._kept: deque[Totals] = deque()

    def add(self, totals: Totals) -> None:
        """Later scrapes only; one that is not newer than the last changes nothing."""
        if self._kept:
            last = self._kept[-1]
            if totals.at <= last.at:
                return
            if _fell(last, totals):
                self._kept.clear()
            elif len(self._kept) > 1 and totals.at - self._kept[-2].at < MIN_STEP_S:
                self._kept.pop()
        self._kept.append(totals)
        while len(self._kept) > 2 and self._kept[1].at <= totals.at - self._span_s:
            self._kept.popleft()

    @property
    def arrival_rate(self) -> float | None:
        """Requests per second, all ranks together."""
        return self._rate("arrivals")

    @property
    def tokens_per_second(self) -> float | None:
        """Committed tokens per wall second, all ranks together."""
        return self._rate("tokens")

    @property
    def mean_output_tokens(self) -> float | None:
        """Tokens per finished request; since the server's start while few finish in the window."""
        finished, generated = self._rise("finished"), self._rise("generated")
        if finished is None or generated is None or finished < MIN_FINISHED:
            last = self._kept[-1] if self._kept else None
            if last is None or not last.finished or last.generated is None:
                return None
            return last.generated / last.finished
        return generated / finished

    def percentile(self, name: str, q: float) -> float | None:
        """Seconds below which a share `q` of the window's observations of "ttft" or "tpot" lie:
        linear within a bucket, the last finite edge beyond it; None without observations.
        """
        if len(self._kept) < 2:
            return None
        old: Buckets = getattr(self._kept[0], name)
        new: Buckets = getattr(self._kept[-1], name)
        counts = [(edge, new[edge] - old.get(edge, 0.0)) for edge in sorted(new)]
        total = counts[-1][1] if counts else 0.0
        if not total > 0:
            return None
        below, below_edge = 0.0, 0.0
        for edge, count in counts:
            if count >= q * total:
                if math.isinf(edge):
                    return below_edge
                share = (q * total - below) / (count - below) if count > below else 1.0
                return below_edge + (edge - below_edge) * share
            below, below_edge = count, edge
        return below_edge

    def _rate(self, name: str) -> float | None:
        if len(self._kept) < 2:
            return None
        *earlier, last = self._kept
        past = (kept for kept in reversed(earlier) if kept.at <= last.at - RATE_SPAN_S)
        since = next(past, earlier[0])
        rise = self._rise(name, since)
        return None if rise is None else rise / (last.at - since.at)

    def _rise(self, name: str, since: Totals | None = None) -> float | None:
        if len(self._kept) < 2:
            return None
        old, new = getattr(since or self._kept[0], name), getattr(self._kept[-1], name)
        if new is None:
            return None
        return float(new) - float(old or 0.0)


def _buckets(snapshot: Snapshot, name: str) -> Buckets:
    merged: dict[float, float] = {}
    for labels, value in snapshot.of(name):
        edge = float(labels["le"])
        merged[edge] = merged.get(edge, 0.0) + value
    return merged


def _fell(old: Totals, new: Totals) -> bool:
    for name in ("arrivals", "finished", "generated", "tokens"):
        before, after = getattr(old, name), getattr(new, name)
        if before is not None and (after is None or after < before):
            return True
    return False
