"""The controller's own metrics as data: name, kind, labels, help. No I/O.

`metrics` creates them from this list and the dashboards check their queries against it, so each
name exists in one place only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "jetspec_controller"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `name` as exported, without the prefix."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    labels: tuple[str, ...] = ()

    @property
    def exported(self) -> str:
        return f"{PREFIX}_{self.name}"


METRICS = (
    Metric("build_info", "gauge", "The controller's version.", ("version",)),
    Metric("config_hash", "gauge", "The configuration in force.", ("hash",)),
    Metric(
        "config_last_reload_success",
        "gauge",
        "1 if the last reload took effect, 0 if it was refused.",
    ),
    Metric("config_restart_needed", "gauge", "Changed configuration keys that wait for a restart."),
    Metric("paused", "gauge", "1 while applying is paused through the API."),
    Metric("targets", "gauge", "Servers under control."),
    Metric("target_up", "gauge", "1 if the load was readable.", ("target",)),
    Metric("mode", "gauge", "1 for the governor in force.", ("target", "mode")),
    Metric(
        "budget_current",
        "gauge",
        "Budget in force for the present batch, by read-back.",
        ("target",),
    ),
    Metric("budget_desired", "gauge", "Budget last decided, for the present batch.", ("target",)),
    Metric(
        "budget_pinned", "gauge", "Budget pinned through the API, 0 without a pin.", ("target",)
    ),
    Metric(
        "budget_floor",
        "gauge",
        "Smallest budget that the controller may choose for a server.",
        ("target",),
    ),
    Metric("signal_value", "gauge", "What the last decision was based on.", ("target", "signal")),
    Metric(
        "signal_age_seconds", "gauge", "Age of an input when it was read.", ("target", "signal")
    ),
    Metric(
        "clock_skew_seconds",
        "gauge",
        "The server's clock minus the controller's, to 1 s.",
        ("target",),
    ),
    Metric(
        "breaker_state",
        "gauge",
        "State of control calls: 0 sent, 1 one trial call, 2 held back.",
        ("target",),
    ),
    Metric("decisions_total", "counter", "Decisions taken.", ("target", "action", "reason")),
    Metric(
        "decision_errors_total",
        "counter",
        "Ticks that ended in an error of the controller.",
        ("target",),
    ),
    Metric("applies_total", "counter", "Control calls by their result.", ("target", "result")),
    Metric(
        "drift_total",
        "counter",
        "Ticks that found a budget that this controller did not decide.",
        ("target",),
    ),
    Metric("second_writer", "gauge", "1 while somebody else changes the budget too.", ("target",)),
    Metric(
        "scrape_errors_total",
        "counter",
        "Inputs that could not be read.",
        ("target", "signal", "reason"),
    ),
    Metric("apply_seconds", "histogram", "One control call and read-back."),
    Metric("scrape_seconds", "histogram", "Reading every server once."),
    Metric("loop_duration_seconds", "histogram", "One whole tick."),
    Metric("loop_lag_seconds", "gauge", "How late the last tick started."),
    Metric(
        "last_success_timestamp_seconds",
        "gauge",
        "Last tick that could decide for every target.",
    ),
    Metric(
        "discovery_errors_total", "counter", "Target lists that could not be read.", ("origin",)
    ),
    Metric("audit_errors_total", "counter", "Audit lines that were lost."),
    Metric("state_errors_total", "counter", "Writes to the state file that failed."),
)
