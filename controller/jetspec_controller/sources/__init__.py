"""Where metrics and targets come from."""

from jetspec_controller.sources.base import MetricSource
from jetspec_controller.sources.discovery import Discovery, MergedDiscovery, StaticDiscovery
from jetspec_controller.sources.prometheus import PrometheusSource
from jetspec_controller.sources.scrape import ScrapeSource

__all__ = [
    "Discovery",
    "MergedDiscovery",
    "MetricSource",
    "PrometheusSource",
    "ScrapeSource",
    "StaticDiscovery",
]
