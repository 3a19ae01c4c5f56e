"""Where metrics and targets come from."""

from .base import MetricSource
from .discovery import Discovery, MergedDiscovery, StaticDiscovery
from .prometheus import PrometheusSource
from .scrape import ScrapeSource

__all__ = [
    "Discovery",
    "MergedDiscovery",
    "MetricSource",
    "PrometheusSource",
    "ScrapeSource",
    "StaticDiscovery",
]
