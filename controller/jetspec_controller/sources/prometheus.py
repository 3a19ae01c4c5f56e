"""Reads every server's metrics from a Prometheus, with one query per tick. Does network I/O.

The query is an instant query of a range selector: it returns raw samples with the time of their
scrape, so that all values of a snapshot come from the same scrape, ages are true, and the rates
need no second query. Some managed backends answer a matcher on `__name__` with 400 or 422: then
each name is asked for by itself, all at the same instant. Ages use Prometheus' clock (its Date
header), so a wrong clock of the controller does not change them. `up` tells a server that is down
from one that Prometheus does not know.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jetspec_controller.core import CostCurve, Fault, TargetObservation
from jetspec_controller.http_client import FetchError, HttpClient, Reply
from jetspec_controller.settings import PrometheusSettings, SourceSettings
from jetspec_controller.sources.observation import build, unusable
from jetspec_controller.sources.series import NAMES, UP, Snapshot
from jetspec_controller.sources.views import View, Views, variants
from jetspec_controller.sources.window import Totals, Window
from jetspec_controller.targets import Target

SETTLED_S = 1.0
"""Queries of single names are for an instant this long ago: its samples have all been stored."""


@dataclass(slots=True)
class _History:
    """The state of one server between ticks."""

    window: Window
    last: Snapshot | None = None


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
        self._by_name = False  # whether each name needs a query of its own

    async def observe(
        self, targets: Sequence[Target], now: float
    ) -> Mapping[str, TargetObservation]:
        if not targets:
            return {}
        try:
            matrix, peer_time = await self._read(targets)
            found = self._collect(matrix)
        except FetchError as error:
            # `down` is kept for servers: a Prometheus that refuses connections is the source's.
            fault = Fault.HTTP if error.fault is Fault.DOWN else error.fault
            detail = f"Prometheus: {error.detail}"
            return {t.id: unusable(t.id, now, fault, detail) for t in targets}
        source_now = now if peer_time is None else peer_time
        return {
            target.id: self._observe(target, found.get(target.instance), now, source_now)
            for target in targets
        }

    def forget(self, target_ids: Sequence[str]) -> None:
        for target_id in target_ids:
            self._histories.pop(target_id, None)

    async def _read(
        self, targets: Sequence[Target]
    ) -> tuple[list[Mapping[str, Any]], float | None]:
        """Every wanted series of these servers, and Prometheus' clock. Raises FetchError."""
        known = all(target.id in self._histories for target in targets)
        span = self._prometheus.lookback_s if known else self._source.window_s
        instances = [target.instance for target in targets]
        if not self._by_name:
            try:
                reply = await self._query(query(self._prometheus, instances, span))
                return _matrix(reply.json()), reply.peer_time
            except FetchError as error:
                if error.status not in (400, 422):
                    raise
        first = await self._query(query(self._prometheus, instances, span, UP))
        names = [spelling for name in NAMES for spelling in variants(name)]
        at = None if first.peer_time is None else first.peer_time - SETTLED_S
        replies = await asyncio.gather(
            *(self._query(query(self._prometheus, instances, span, name), at) for name in names)
        )
        self._by_name = True
        series = [one for reply in (first, *replies) for one in _matrix(reply.json())]
        return series, first.peer_time

    async def _query(self, text: str, at: float | None = None) -> Reply:
        try:
            headers = self._prometheus.request_headers()
        except ValueError as error:
            raise FetchError(Fault.UNAUTHORISED, str(error)) from error
        form = {"query": text, "timeout": f"{self._prometheus.timeout_s:g}s"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        return await self._client.post(
            f"{self._prometheus.url}/api/v1/query",
            timeout_s=self._prometheus.timeout_s,
            headers=headers,
            form=form,
        )

    def _collect(self, matrix: Iterable[Mapping[str, Any]]) -> Mapping[str, Views | str]:
        """The views of each instance, or what is wrong with its series: a malformed one spoils its
        own instance only. Raises FetchError(PARSE) for a series that names no instance.
        """
        found: dict[str, Views | str] = {}
        for series in matrix:
            try:
                labels = series["metric"]
                instance = labels[self._prometheus.instance_label]
            except (KeyError, TypeError) as error:
                raise FetchError(Fault.PARSE, f"a series is malformed: {error!r}") from error
            views = found.setdefault(instance, Views())
            try:
                if isinstance(views, Views):
                    views.add(labels, series["values"])
            except (KeyError, TypeError, ValueError, IndexError) as error:
                found[instance] = f"a series is malformed: {error!r}"
        return found

    def _observe(
        self, target: Target, found: Views | str | None, now: float, source_now: float
    ) -> TargetObservation:
        label = f'{self._prometheus.instance_label}="{target.instance}"'
        if found is None:
            self._histories.pop(target.id, None)
            detail = f"Prometheus has no series with {label} in its lookback"
            return unusable(target.id, now, Fault.EMPTY, detail)
        if isinstance(found, str):
            return unusable(target.id, now, Fault.PARSE, f"{label}: {found}")
        history = self._histories.setdefault(target.id, _History(Window(self._source.window_s)))
        view = found.best()
        try:
            snapshots = _snapshots(view, 0.0 if history.last is None else history.last.at)
        except (TypeError, ValueError) as error:
            return unusable(
                target.id, now, Fault.PARSE, f"{label}: a sample is malformed: {error!r}"
            )
        for history.last in snapshots:
            history.window.add(Totals.of(history.last))
        last_at = 0.0 if history.last is None else history.last.at
        if view.up is not None and view.up[0] >= last_at and view.up[1] == 0:
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


def query(
    prometheus: PrometheusSettings,
    instances: Iterable[str],
    span_s: float,
    name: str | None = None,
) -> str:
    """Every series that is read, and `up`, of these instances over `span_s`; or one name alone."""
    chosen = "|".join(sorted(map(re.escape, instances)))
    matchers = [f"{prometheus.instance_label}=~{json.dumps(chosen)}"]
    if name is None:
        names = "|".join(name.replace("sglang:", "sglang[:_]") for name in (*NAMES, UP))
        matchers.insert(0, f"__name__=~{json.dumps(names)}")
    matchers += filter(None, [prometheus.selector.strip().strip(",")])
    return f"{name or ''}{{{','.join(matchers)}}}[{max(1, round(span_s))}s]"


def _snapshots(view: View, after: float) -> list[Snapshot]:
    """The scrapes of a view later than `after`, in order. Raises TypeError, ValueError."""
    found: dict[float, Snapshot] = {}
    for name, labels, values in view.series:
        for at, value in values:
            if at > after:
                found.setdefault(at, Snapshot(float(at))).add(name, labels, float(value))
    return [found[at] for at in sorted(found)]


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
