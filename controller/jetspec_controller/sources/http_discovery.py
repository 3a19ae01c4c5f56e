"""Targets from a Prometheus' `up` series, and from an sglang-router's list of workers.

Does network I/O. A router is only asked for its workers; control calls go to them, because the
router does not know SGLang's admin API.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jetspec_controller.core import Fault
from jetspec_controller.http_client import FetchError, HttpClient
from jetspec_controller.settings import PrometheusDiscovery as PrometheusDiscoverySettings
from jetspec_controller.settings import PrometheusSettings, RouterDiscovery, Settings
from jetspec_controller.sources.discovery import discovered
from jetspec_controller.targets import Origin, Target

RANK_SUFFIX = re.compile(r"@\d+$")
"""A router that knows data-parallel ranks lists a server once per rank, as `url@rank`."""


class PrometheusUpDiscovery:
    """One target for each instance in the answer to an `up` query, whether it is up or not."""

    origin = Origin.PROMETHEUS

    def __init__(
        self,
        client: HttpClient,
        prometheus: PrometheusSettings,
        discovery: PrometheusDiscoverySettings,
        settings: Settings,
    ) -> None:
        self._client = client
        self._prometheus = prometheus
        self._discovery = discovery
        self._settings = settings
        self._cache = _Cache(discovery.refresh_s)

    async def targets(self, now: float) -> Sequence[Target]:
        if self._cache.due(now):
            reply = await self._client.post(
                f"{self._prometheus.url}/api/v1/query",
                timeout_s=self._prometheus.timeout_s,
                headers=_headers(self._prometheus),
                form={"query": self._discovery.query},
            )
            self._cache.keep(self._parse(reply.json()), now)
        return self._cache.targets

    def _parse(self, body: Any) -> Sequence[Target]:
        label = self._prometheus.instance_label
        try:
            instances = {series["metric"][label] for series in body["data"]["result"]}
        except (KeyError, TypeError) as error:
            raise FetchError(Fault.PARSE, f"{self._discovery.query}: {error!r}") from error
        return tuple(
            discovered(instance, self._discovery.scheme, self.origin, self._settings)
            for instance in sorted(instances)
        )


class RouterWorkers:
    """The HTTP workers of an sglang-router that decode: of type `regular` or `decode`."""

    origin = Origin.ROUTER

    def __init__(self, client: HttpClient, router: RouterDiscovery, settings: Settings) -> None:
        self._client = client
        self._router = router
        self._settings = settings
        self._cache = _Cache(router.refresh_s)

    async def targets(self, now: float) -> Sequence[Target]:
        if self._cache.due(now):
            reply = await self._client.get(
                f"{self._router.url}/workers",
                timeout_s=self._router.timeout_s,
                headers=_headers(self._router),
            )
            self._cache.keep(self._parse(reply.json()), now)
        return self._cache.targets

    def _parse(self, body: Any) -> Sequence[Target]:
        try:
            addresses = {
                RANK_SUFFIX.sub("", worker["url"])
                for worker in body["workers"]
                if worker.get("worker_type", "regular") in ("regular", "decode")
                and str(worker.get("connection_mode", "HTTP")).upper() == "HTTP"
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise FetchError(Fault.PARSE, f"/workers: {error!r}") from error
        return tuple(
            discovered(address, "http", self.origin, self._settings)
            for address in sorted(addresses)
        )


class _Cache:
    """The last list, and the time of the next read. A failed read is retried at the next tick."""

    def __init__(self, refresh_s: float) -> None:
        self._refresh_s = refresh_s
        self._read_at: float | None = None
        self.targets: Sequence[Target] = ()

    def due(self, now: float) -> bool:
        return self._read_at is None or not 0 <= now - self._read_at < self._refresh_s

    def keep(self, targets: Sequence[Target], now: float) -> None:
        self.targets, self._read_at = targets, now


def _headers(endpoint: PrometheusSettings | RouterDiscovery) -> dict[str, str]:
    try:
        return endpoint.request_headers()
    except ValueError as error:
        raise FetchError(Fault.UNAUTHORISED, str(error)) from error
