"""Reads every server's metrics from a Prometheus, with one query a tick. Does network I/O.

The query is an instant query of a range selector: it returns raw samples with the time of their
scrape, so that all values of a snapshot come from the same scrape, ages are true, and the rates
need no second query. Ages are taken on Prometheus' clock (its Date header), so that a controller
whose clock is off sees the same ages. `up` tells a server that is down from one that Prometheus
does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core import CostCurve, Fault, TargetObservation
from ..http_client import FetchError, HttpClient, Reply
from ..settings import PrometheusSettings, SourceSettings
from ..targets import Target
from .observation import build, unusable
from .series import NAMES, UP, Snapshot, canonical
from .window import Totals, Window


@dataclass(slots=True)
class _History:
    """What is remembered of one server between ticks."""

    window: Window
    last: Snapshot | None = None


@dataclass(slots=True)
class _Found:
    """New samples of one instance by scrape time, and its last `up`."""

    snapshots: dict[float, Snapshot] = field(default_factory=dict)
    up: tuple[float, float] | None = None
    problem: str | None = None

    def add(self, labels: Mapping[str, str], values: Sequence[Any], after: float) -> None:
        """One series' samples later than `after`; of `up` the last one."""
        name = canonical(labels["__name__"])
        if name == UP:
            at, value = values[-1]
            self.up = max(self.up or (0.0, 0.0), (float(at), float(value)))
            return
        for at, value in values:
            if at > after:
                snapshot = self.snapshots.get(at)
                if snapshot is None:
                    snapshot = self.snapshots[at] = Snapshot(float(at))
                snapshot.add(name, labels, float(value))


class PrometheusSource:
    """Needs one HttpClient with the Prometheus' TLS settings."""

    def __init__(
        self,
        client: HttpClient,
        prometheus: PrometheusSettings,
        source: SourceSettings,
        file_cost: CostCurve | None = None,
    ) -> None:
        self._client = client
        self._prometheus = prometheus
        self._source = source
        self._file_cost = file_cost
        self._histories: dict[str, _History] = {}

    async def observe(
        self, targets: Sequence[Target], now: float
    ) -> Mapping[str, TargetObservation]:
        if not targets:
            return {}
        try:
            reply = await self._query(targets)
            found = self._collect(targets, _matrix(reply.json()))
        except FetchError as error:
            # `down` is kept for servers: a Prometheus that refuses connections is the source's.
            fault = Fault.HTTP if error.fault is Fault.DOWN else error.fault
            detail = f"Prometheus: {error.detail}"
            return {t.id: unusable(t.id, now, fault, detail) for t in targets}
        source_now = now if reply.peer_time is None else reply.peer_time
        return {
            target.id: self._observe(target, found.get(target.instance), now, source_now)
            for target in targets
        }

    def forget(self, target_ids: Sequence[str]) -> None:
        for target_id in target_ids:
            self._histories.pop(target_id, None)

    async def _query(self, targets: Sequence[Target]) -> Reply:
        known = all(target.id in self._histories for target in targets)
        span = self._prometheus.lookback_s if known else self._source.window_s
        try:
            headers = self._prometheus.request_headers()
        except ValueError as error:
            raise FetchError(Fault.UNAUTHORISED, str(error)) from error
        return await self._client.post(
            f"{self._prometheus.url}/api/v1/query",
            timeout_s=self._prometheus.timeout_s,
            headers=headers,
            form={
                "query": query(self._prometheus, (t.instance for t in targets), span),
                "timeout": f"{self._prometheus.timeout_s:g}s",
            },
        )

    def _collect(
        self, targets: Sequence[Target], matrix: Iterable[Mapping[str, Any]]
    ) -> Mapping[str, _Found]:
        """Samples not seen before, by instance. A malformed series spoils its own instance only;
        raises FetchError(PARSE) for one that names none.
        """
        seen = {t.instance: self._last_at(t) for t in targets}
        found: dict[str, _Found] = {}
        for series in matrix:
            try:
                labels = series["metric"]
                instance = labels[self._prometheus.instance_label]
            except (KeyError, TypeError) as error:
                raise FetchError(Fault.PARSE, f"a series is malformed: {error!r}") from error
            here = found.setdefault(instance, _Found())
            try:
                here.add(labels, series["values"], seen.get(instance, 0.0))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                here.problem = f"a series is malformed: {error!r}"
        return found

    def _last_at(self, target: Target) -> float:
        history = self._histories.get(target.id)
        return 0.0 if history is None or history.last is None else history.last.at

    def _observe(
        self, target: Target, found: _Found | None, now: float, source_now: float
    ) -> TargetObservation:
        label = f'{self._prometheus.instance_label}="{target.instance}"'
        if found is None:
            self._histories.pop(target.id, None)
            detail = f"Prometheus has no series with {label} in its lookback"
            return unusable(target.id, now, Fault.EMPTY, detail)
        if found.problem is not None:
            return unusable(target.id, now, Fault.PARSE, f"{label}: {found.problem}")
        history = self._histories.setdefault(target.id, _History(Window(self._source.window_s)))
        for at in sorted(found.snapshots):
            history.last = found.snapshots[at]
            history.window.add(Totals.of(history.last))
        last_at = 0.0 if history.last is None else history.last.at
        if found.up is not None and found.up[0] >= last_at and found.up[1] == 0:
            return unusable(target.id, now, Fault.DOWN, f"up is 0 for {label}")
        try:
            return build(
                target.id,
                now,
                history.last or Snapshot(source_now),
                history.window,
                age_s=max(0.0, source_now - last_at) if history.last else 0.0,
                percentile=self._source.latency_percentile,
                file_cost=self._file_cost,
            )
        except (KeyError, ValueError) as error:
            return unusable(target.id, now, Fault.PARSE, f"{label}: {error!r}")


def query(prometheus: PrometheusSettings, instances: Iterable[str], span_s: float) -> str:
    """The one query: every series that is read, and `up`, of these instances over `span_s`."""
    names = "|".join(name.replace("sglang:", "sglang[:_]") for name in (*NAMES, UP))
    chosen = "|".join(sorted(map(re.escape, instances)))
    matchers = [
        f"__name__=~{json.dumps(names)}",
        f"{prometheus.instance_label}=~{json.dumps(chosen)}",
        *filter(None, [prometheus.selector.strip().strip(",")]),
    ]
    return f"{{{','.join(matchers)}}}[{max(1, round(span_s))}s]"


def _matrix(body: Any) -> list[Mapping[str, Any]]:
    try:
        if body["status"] != "success":
            raise FetchError(Fault.HTTP, str(body.get("error", body["status"])))
        data = body["data"]
        if data["resultType"] != "matrix" or not isinstance(data["result"], list):
            raise FetchError(Fault.PARSE, f"resultType is {data['resultType']!r}, not 'matrix'")
        return list(data["result"])
    except (KeyError, TypeError, AttributeError) as error:
        raise FetchError(Fault.PARSE, f"not a query result: {error!r}") from error
