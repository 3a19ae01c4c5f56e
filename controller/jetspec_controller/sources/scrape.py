"""Reads servers directly: `/metrics` for curves and rates, `/v1/loads` for the load.

This is the default. It needs no Prometheus. `/v1/loads` is read from shared memory, answers while
the scheduler is busy, and carries the scheduler's own timestamp; the load gauges of `/metrics` are
only renewed every 40 decode rounds and stand in where `/v1/loads` is switched off. Does network
I/O, with at most `concurrency` servers under way, one deadline per call and one for them all, so
that servers that hang cannot hold up a tick by more than twice `timeout_s`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from jetspec_controller.core import CostCurve, Fault, Signal, SourceError, TargetObservation
from jetspec_controller.http_client import FetchError, HttpClient, Reply
from jetspec_controller.settings import ScrapeSettings, SourceSettings
from jetspec_controller.sources.exposition import ExpositionParser
from jetspec_controller.sources.observation import READ_SIGNALS, LoadReading, build, unusable
from jetspec_controller.sources.series import Snapshot
from jetspec_controller.sources.window import Totals, Window
from jetspec_controller.targets import Target

T = TypeVar("T")


class ScrapeSource:
    """Holds one `Window` a server and the parser's memory of series."""

    def __init__(
        self,
        client: HttpClient,
        scrape: ScrapeSettings,
        source: SourceSettings,
        file_cost: CostCurve | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._scrape = scrape
        self._source = source
        self._file_cost = file_cost
        self._monotonic = monotonic
        self._parser = ExpositionParser()
        self._windows: dict[str, Window] = {}
        self._turn = 0

    async def observe(
        self, targets: Sequence[Target], now: float
    ) -> Mapping[str, TargetObservation]:
        slots = asyncio.Semaphore(self._scrape.concurrency)

        async def one(target: Target) -> TargetObservation:
            async with slots:
                return await self._observe(target, now)

        tasks = {target.id: asyncio.create_task(one(target)) for target in self._rotated(targets)}
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=2 * self._scrape.timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        detail = "it was not read before the tick's deadline"
        return {
            name: unusable(name, now, Fault.TIMEOUT, detail) if task.cancelled() else task.result()
            for name, task in tasks.items()
        }

    def _rotated(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Each tick starts with another server, so that no server is left out for long when time is
        short."""
        self._turn = (self._turn + self._scrape.concurrency) % max(len(targets), 1)
        return [*targets[self._turn :], *targets[: self._turn]]

    def forget(self, target_ids: Sequence[str]) -> None:
        for target_id in target_ids:
            self._windows.pop(target_id, None)

    async def _observe(self, target: Target, now: float) -> TargetObservation:
        started = self._monotonic()
        try:
            headers = target.headers()
        except ValueError as error:
            return unusable(target.id, now, Fault.UNAUTHORISED, str(error))
        scraped, load = await asyncio.gather(
            _caught(self._get(target, "/metrics", headers)),
            _caught(self._loads(target, headers)),
        )
        at = now + self._monotonic() - started
        errors = []
        if isinstance(load, FetchError):
            errors.append(SourceError(Signal.LOAD, load.fault, f"/v1/loads: {load.detail}"))
            load = LoadReading(None, None)
        snapshot = self._snapshot(target, scraped, at)
        if isinstance(snapshot, FetchError):
            signals = [s for s in READ_SIGNALS if s is not Signal.LOAD or load is None]
            errors += [SourceError(s, snapshot.fault, snapshot.detail) for s in signals]
            snapshot = Snapshot(at)
        window = self._windows.setdefault(target.id, Window(self._source.window_s))
        try:
            if snapshot.samples:
                window.add(Totals.of(snapshot))
            return build(
                target.id,
                now,
                snapshot,
                window,
                age_s=0.0,
                percentile=self._source.latency_percentile,
                load=load,
                file_cost=self._file_cost,
                errors=errors,
            )
        except (ValueError, KeyError) as error:
            return unusable(target.id, now, Fault.PARSE, f"/metrics: {error!r}")

    def _snapshot(
        self, target: Target, scraped: Reply | FetchError, at: float
    ) -> Snapshot | FetchError:
        if isinstance(scraped, FetchError):
            return FetchError(scraped.fault, f"/metrics: {scraped.detail}")
        try:
            snapshot = self._parser.parse(scraped.text(), at)
        except FetchError as error:
            return error
        except ValueError as error:
            return FetchError(Fault.PARSE, f"/metrics: {error}")
        if not snapshot.samples:
            detail = "/metrics has none of the expected series; is --enable-metrics set?"
            return FetchError(Fault.EMPTY, detail)
        return snapshot

    async def _get(self, target: Target, path: str, headers: Mapping[str, str]) -> Reply:
        return await self._client.get(
            target.url + path, timeout_s=self._scrape.timeout_s, headers=headers
        )

    async def _loads(self, target: Target, headers: Mapping[str, str]) -> LoadReading | None:
        if not self._scrape.loads:
            return None
        reply = await self._get(target, "/v1/loads?include=core", headers)
        return parse_loads(reply.json())


async def _caught(call: Awaitable[T]) -> T | FetchError:
    try:
        return await call
    except FetchError as error:
        return error


def parse_loads(body: Any) -> LoadReading:
    """Means over data-parallel ranks. A rank that has not published yet (timestamp 0) makes the
    load missing. Raises FetchError(PARSE) for any other shape.
    """
    try:
        ranks = body["loads"]
        if not ranks:
            raise FetchError(Fault.EMPTY, "/v1/loads lists no rank")
        stamp = min(float(rank["timestamp"]) for rank in ranks)
        if stamp <= 0:
            return LoadReading(None, None)

        def mean(key: str) -> float:
            return sum(float(rank[key]) for rank in ranks) / len(ranks)

        return LoadReading(
            running=mean("num_running_reqs"),
            waiting=mean("num_waiting_reqs"),
            token_usage=mean("token_usage"),
            kv_tokens=mean("max_total_num_tokens") or None,
            max_running=mean("max_running_requests"),
            producer_timestamp=stamp,
            ticks_when_idle=True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FetchError(Fault.PARSE, f"/v1/loads: {error!r}") from error
