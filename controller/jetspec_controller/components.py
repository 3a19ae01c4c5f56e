"""The parts that a configuration creates: clients, discovery, source, actuator. Opens connections
pools.

A reload creates new parts and replaces all of them at once. So a reload is atomic.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from jetspec_controller.actuators import Actuator, SGLangActuator
from jetspec_controller.core import CostCurve, CostPoint, CostSource
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.http_client import HttpClient
from jetspec_controller.kube import KubernetesUnavailableError
from jetspec_controller.settings import Settings, SettingsError
from jetspec_controller.sources import (
    Discovery,
    MergedDiscovery,
    MetricSource,
    PrometheusSource,
    ScrapeSource,
    StaticDiscovery,
)
from jetspec_controller.sources.file_discovery import FileDiscovery
from jetspec_controller.sources.http_discovery import PrometheusUpDiscovery, RouterWorkers
from jetspec_controller.sources.kubernetes_discovery import KubernetesDiscovery


@dataclass(frozen=True, slots=True)
class Components:
    """All components that `settings` needs; `stack` closes them."""

    settings: Settings
    discovery: MergedDiscovery
    source: MetricSource
    actuator: Actuator
    stack: AsyncExitStack


async def build_components(
    settings: Settings, metrics: ControllerMetrics, clock: Callable[[], float] = time.time
) -> Components:
    """Raises SettingsError for a file that cannot be loaded; nothing is left open then."""
    async with AsyncExitStack() as stack:
        try:
            control = await stack.enter_async_context(HttpClient(settings.control.tls.context()))
            cost = _cost_file(settings.source.cost_file)
            places: list[Discovery] = [StaticDiscovery(settings)]
            found = settings.discovery
            if found.file is not None:
                places.append(FileDiscovery(found.file, settings))
            if found.router is not None:
                tls = found.router.tls.context()
                client = await stack.enter_async_context(HttpClient(tls))
                places.append(RouterWorkers(client, found.router, settings))
            if found.kubernetes is not None:
                places.append(KubernetesDiscovery(found.kubernetes, settings))
            source: MetricSource
            if settings.prometheus is None:
                source = ScrapeSource(control, settings.scrape, settings.source, cost)
            else:
                tls = settings.prometheus.tls.context()
                client = await stack.enter_async_context(HttpClient(tls))
                source = PrometheusSource(client, settings.prometheus, settings.source, cost)
                if found.prometheus is not None:
                    places.append(
                        PrometheusUpDiscovery(
                            client, settings.prometheus, found.prometheus, settings
                        )
                    )
        except (ValueError, KubernetesUnavailableError) as error:
            raise SettingsError(str(error)) from error
        return Components(
            settings,
            MergedDiscovery(places, metrics, settings.policy_keys),
            source,
            SGLangActuator(control, settings.control, metrics, clock=clock),
            stack.pop_all(),
        )


async def check_components(settings: Settings) -> None:
    """Raises SettingsError for files that cannot be loaded; contacts nothing."""
    components = await build_components(settings, ControllerMetrics())
    await components.stack.aclose()


def _cost_file(path: Path | None) -> CostCurve | None:
    """`points: [{rows: 1, seconds: 0.01}, …]` in YAML or JSON. Raises ValueError."""
    if path is None:
        return None
    try:
        content: Any = yaml.safe_load(path.read_text())
        points = [CostPoint(float(p["rows"]), float(p["seconds"])) for p in content["points"]]
    except OSError as error:
        raise ValueError(f"source.cost_file: {path}: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"source.cost_file: {path}: must hold points of rows and seconds: {error!r}"
        ) from error
    if len(points) < 2 or any(p.rows <= 0 or p.seconds <= 0 for p in points):
        raise ValueError(f"source.cost_file: {path}: needs two points or more, all above zero")
    return CostCurve(tuple(sorted(points, key=lambda p: p.rows)), CostSource.FILE)
