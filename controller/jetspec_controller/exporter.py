"""The controller's own Prometheus metrics, one registry per instance. No I/O.

`metric_list` lists the metrics. Series of a server that is no longer a target are removed, so the
current number of targets bounds the number of series.
"""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from jetspec_controller import __version__
from jetspec_controller.metric_list import METRICS, Metric

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ControllerMetrics:
    """Attributes are the metrics of the list, named as exported without the prefix."""

    build_info: Gauge
    config_hash: Gauge
    config_last_reload_success: Gauge
    config_restart_needed: Gauge
    paused: Gauge
    targets: Gauge
    target_up: Gauge
    mode: Gauge
    budget_current: Gauge
    budget_desired: Gauge
    budget_pinned: Gauge
    budget_floor: Gauge
    signal_value: Gauge
    signal_age_seconds: Gauge
    clock_skew_seconds: Gauge
    breaker_state: Gauge
    decisions_total: Counter
    decision_errors_total: Counter
    applies_total: Counter
    drift_total: Counter
    second_writer: Gauge
    scrape_errors_total: Counter
    apply_seconds: Histogram
    scrape_seconds: Histogram
    loop_duration_seconds: Histogram
    loop_lag_seconds: Gauge
    last_success_timestamp_seconds: Gauge
    discovery_errors_total: Counter
    audit_errors_total: Counter
    state_errors_total: Counter

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._by_target: list[MetricWrapperBase] = []
        self._modes: dict[str, str] = {}

        for metric in METRICS:
            made = self._create(metric)
            if "target" in metric.labels:
                self._by_target.append(made)
            setattr(self, metric.name, made)
        self.build_info.labels(__version__).set(1)
        self.config_last_reload_success.set(1)
        for gauge in (self.paused, self.config_restart_needed, self.loop_lag_seconds):
            gauge.set(0)

    def forget(self, target: str) -> None:
        """Remove every series of one server."""
        self._modes.pop(target, None)
        for metric in self._by_target:
            metric.remove_by_labels({"target": target})

    def show_config(self, digest: str) -> None:
        self.config_hash.clear()
        self.config_hash.labels(digest).set(1)

    def show_mode(self, target: str, mode: str) -> None:
        before = self._modes.get(target)
        if before is not None and before != mode:
            self.mode.remove(target, before)
        self._modes[target] = mode
        self.mode.labels(target, mode).set(1)

    def show_signal(self, target: str, signal: str, value: float | None) -> None:
        self.signal_value.labels(target, signal).set(math.nan if value is None else value)

    def _create(self, metric: Metric) -> MetricWrapperBase:
        name, text, labels = metric.exported, metric.text, metric.labels
        match metric.kind:
            case "gauge":
                return Gauge(name, text, labels, registry=self.registry)
            case "counter":
                return Counter(name, text, labels, registry=self.registry)
            case "histogram":
                return Histogram(name, text, labels, buckets=SECONDS, registry=self.registry)
