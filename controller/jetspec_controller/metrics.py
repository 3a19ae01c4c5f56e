"""The controller's own Prometheus metrics, one registry an instance. No I/O.

Every name starts with `jetspec_controller_`. Series of a server that is no longer a target are
removed, so their number is bounded by the targets of the moment.
"""

from __future__ import annotations

import math
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from . import __version__

PREFIX = "jetspec_controller"
M = TypeVar("M", bound=MetricWrapperBase)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ControllerMetrics:
    """Attributes are the metrics, named as exported without the prefix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._by_target: list[MetricWrapperBase] = []
        self._modes: dict[str, str] = {}

        self.build_info = self._gauge("build_info", "The controller's version.", "version")
        self.config_hash = self._gauge("config_hash", "The configuration in force.", "hash")
        self.config_last_reload_success = self._gauge(
            "config_last_reload_success", "1 if the last reload took effect, 0 if it was refused."
        )
        self.config_restart_needed = self._gauge(
            "config_restart_needed", "Changed configuration keys that wait for a restart."
        )
        self.paused = self._gauge("paused", "1 while applying is paused through the API.")
        self.targets = self._gauge("targets", "Servers under control.")

        self.target_up = self._gauge("target_up", "1 if the load was readable.", "target")
        self.mode = self._gauge("mode", "1 for the governor in force.", "target", "mode")
        self.budget_current = self._gauge(
            "budget_current", "Budget in force for the present batch, by read-back.", "target"
        )
        self.budget_desired = self._gauge(
            "budget_desired", "Budget last decided, for the present batch.", "target"
        )
        self.budget_pinned = self._gauge(
            "budget_pinned", "Budget pinned through the API, 0 without a pin.", "target"
        )
        self.signal_value = self._gauge(
            "signal_value", "What the last decision was based on.", "target", "signal"
        )
        self.signal_age_seconds = self._gauge(
            "signal_age_seconds", "Age of an input when it was read.", "target", "signal"
        )
        self.clock_skew_seconds = self._gauge(
            "clock_skew_seconds", "The server's clock minus the controller's, to 1 s.", "target"
        )
        self.breaker_state = self._gauge(
            "breaker_state", "Control calls: 0 flow, 1 one is let through, 2 are held.", "target"
        )
        self.decisions_total = self._counter(
            "decisions", "Decisions taken.", "target", "action", "reason"
        )
        self.decision_errors_total = self._counter(
            "decision_errors", "Ticks that ended in an error of the controller.", "target"
        )
        self.applies_total = self._counter(
            "applies", "Control calls by their result.", "target", "result"
        )
        self.drift_total = self._counter(
            "drift", "Ticks that found a budget nobody here decided.", "target"
        )
        self.second_writer = self._gauge(
            "second_writer", "1 while somebody else changes the budget too.", "target"
        )
        self.scrape_errors_total = self._counter(
            "scrape_errors", "Inputs that could not be read.", "target", "signal", "reason"
        )

        self.apply_seconds = self._histogram("apply_seconds", "One control call and read-back.")
        self.scrape_seconds = self._histogram("scrape_seconds", "Reading every server once.")
        self.loop_duration_seconds = self._histogram("loop_duration_seconds", "One whole tick.")
        self.loop_lag_seconds = self._gauge("loop_lag_seconds", "How late the last tick started.")
        self.last_success_timestamp_seconds = self._gauge(
            "last_success_timestamp_seconds", "Last tick that could decide for every target."
        )
        self.discovery_errors_total = self._counter(
            "discovery_errors", "Target lists that could not be read.", "origin"
        )
        self.audit_errors_total = self._counter("audit_errors", "Audit lines that were lost.")
        self.state_errors_total = self._counter(
            "state_errors", "Writes to the state file that failed."
        )
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

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        gauge = Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)
        return self._known(gauge, labels)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        counter = Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)
        return self._known(counter, labels)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", text, buckets=SECONDS, registry=self.registry)

    def _known(self, metric: M, labels: tuple[str, ...]) -> M:
        if "target" in labels:
            self._by_target.append(metric)
        return metric
