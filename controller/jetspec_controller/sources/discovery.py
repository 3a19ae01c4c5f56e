"""The servers under control. The lists come from several places and are merged here.

If a place cannot be read, its last list stays in use. So servers do not disappear when a file, a
Prometheus, a router or the Kubernetes API cannot be read for some time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from jetspec_controller.core import Fault
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.http_client import FetchError
from jetspec_controller.settings import Settings
from jetspec_controller.targets import Origin, Target, host_port

logger = logging.getLogger(__name__)


class Discovery(Protocol):
    """One place that names servers. `targets` may do I/O and raises FetchError if it fails."""

    @property
    def origin(self) -> Origin: ...

    async def targets(self, now: float) -> Sequence[Target]: ...


class StaticDiscovery:
    """The servers named in the configuration."""

    origin = Origin.STATIC

    def __init__(self, settings: Settings) -> None:
        control = settings.control
        self._targets = tuple(
            Target(
                id=target.name,
                url=target.url,
                instance=target.instance or host_port(target.url),
                api_key=target.api_key or control.api_key,
                admin_key=target.admin_key or control.admin_key,
                policy=target.policy,
            )
            for target in settings.targets
        )

    async def targets(self, now: float) -> Sequence[Target]:
        return self._targets


class MergedDiscovery:
    """All lists merged. If two lists name the same id or address, the first one wins. `policy_keys`
    gives the policy of a target that has none of its own, by its id.
    """

    def __init__(
        self,
        places: Sequence[Discovery],
        metrics: ControllerMetrics,
        policy_keys: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self._places = places
        self._metrics = metrics
        self._policy_keys = policy_keys
        self._last: dict[Origin, Sequence[Target]] = {}
        self.problems: Mapping[Origin, str] = {}

    async def targets(self, now: float) -> Sequence[Target]:
        """All servers at present; raises nothing. `problems` says which place failed, and why."""
        problems: dict[Origin, str] = {}
        merged: dict[str, Target] = {}
        addresses: set[str] = set()
        for place in self._places:
            try:
                self._last[place.origin] = await place.targets(now)
            except FetchError as error:
                problems[place.origin] = str(error)
                self._metrics.discovery_errors_total.labels(place.origin).inc()
                if place.origin not in self.problems:
                    logger.warning("targets from %s cannot be read: %s", place.origin, error)
            for target in self._last.get(place.origin, ()):
                if target.id not in merged and target.url not in addresses:
                    policy = target.policy or self._policy_keys(target.id)
                    merged[target.id] = replace(target, policy=policy)
                    addresses.add(target.url)
        self.problems = problems
        return tuple(merged.values())


def discovered(address: str, scheme: str, origin: Origin, settings: Settings) -> Target:
    """A server known by `host:port` (or a whole URL) only. Raises FetchError(PARSE)."""
    url = address if "://" in address else f"{scheme}://{address}"
    try:
        name = host_port(url)
    except ValueError as error:
        raise FetchError(Fault.PARSE, f"{address!r} is not an address: {error}") from error
    if not url.startswith(("http://", "https://")) or "None" in name:
        raise FetchError(Fault.PARSE, f"{address!r} is not an http address")
    return Target(
        id=name,
        url=url.rstrip("/"),
        instance=name,
        origin=origin,
        api_key=settings.control.api_key,
        admin_key=settings.control.admin_key,
    )
