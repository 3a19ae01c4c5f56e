"""The rows on control calls, errors and the loop of *JetSpec: controller*. No I/O."""

from __future__ import annotations

from typing import Any

from dashboards.panels import Query, over_time, states
from dashboards.promql import controller, largest, once, quantile, rate, total, value

YES_NO = {0: ("no", "red"), 1: ("yes", "green")}
BREAKER = {0: ("closed", "green"), 1: ("one trial call", "yellow"), 2: ("open", "red")}


def applies() -> list[Any]:
    applies, drift = controller("applies_total"), controller("drift_total")
    return [
        over_time(
            "Control calls by result",
            "Calls per minute. Every result except `applied` is retried in a later tick.",
            "cpm",
            Query(f"60 * {total(rate(applies), 'result')}", "{{result}}"),
            stacked=True,
            span=8,
        ),
        over_time(
            "Duration of a control call",
            "One call and its read-back. A server takes a call between two batches, so a long"
            " prefill delays it.",
            "s",
            *(
                Query(quantile(q, controller("apply_seconds", "bucket")), f"p{100 * q:.0f}")
                for q in (0.5, 0.95)
            ),
            span=8,
        ),
        over_time(
            "Drift",
            "Ticks per hour that found a budget that the controller had not decided: somebody"
            " else writes, too.",
            "short",
            Query(
                once(drift, f"increase({drift.select()}[1h])"),
                "{{target}}",
            ),
            span=8,
        ),
        states(
            "Breaker",
            "Open: calls to this server are held back after repeated failures. A trial call"
            " follows by itself.",
            Query(value(controller("breaker_state")), "{{target}}"),
            names=BREAKER,
            height=5,
        ),
        states(
            "Second writer",
            "Whether somebody else changed a server's budget at least twice within ten minutes.",
            Query(value(controller("second_writer")), "{{target}}"),
            names={0: ("none", "green"), 1: ("second writer", "red")},
            height=5,
        ),
    ]


def exceptions() -> list[Any]:
    lost = [
        ("state_errors_total", "writes to the state file"),
        ("audit_errors_total", "audit lines"),
    ]
    by_label = [
        ("decision_errors_total", "target", "decisions {{target}}"),
        ("discovery_errors_total", "origin", "target list {{origin}}"),
    ]
    return [
        over_time(
            "Pinned budgets",
            "Budget that a person fixed; 0 without a pin.",
            "short",
            Query(value(controller("budget_pinned")), "{{target}}"),
            step=True,
            span=8,
        ),
        over_time(
            "Governors in force",
            "Servers by the governor in force: `paused` and `pinned` override the configured one.",
            "short",
            Query(total(value(controller("mode")), "mode"), "{{mode}}"),
            stacked=True,
            step=True,
            span=8,
        ),
        over_time(
            "Errors of the controller",
            "Failures per second: writes to the state file, audit lines lost, decisions that"
            " ended in an error, target lists that could not be read.",
            "ops",
            *(Query(total(rate(controller(name))), legend) for name, legend in lost),
            *(Query(total(rate(controller(name)), by), legend) for name, by, legend in by_label),
            span=8,
        ),
        states(
            "Last reload of the configuration took effect",
            "`no`: the changed file was refused and the old configuration is in force.",
            Query(
                largest(value(controller("config_last_reload_success")), "instance"),
                "{{instance}}",
            ),
            names=YES_NO,
            span=8,
            height=4,
        ),
        states(
            "Configuration in force",
            "A new band is a new configuration; its name is a hash of the file.",
            Query(value(controller("config_hash")), "{{hash}} {{instance}}"),
            names={1: ("in force", "blue")},
            span=8,
            height=4,
        ),
        over_time(
            "Configuration keys that wait for a restart",
            "Keys that a reload changed and that take effect only after a restart.",
            "short",
            Query(largest(value(controller("config_restart_needed")), "instance"), "{{instance}}"),
            step=True,
            span=8,
            height=4,
        ),
    ]


def loop() -> list[Any]:
    return [
        over_time(
            "Duration of a tick",
            "Reading, deciding and waiting for control calls. It should stay below the interval.",
            "s",
            *(
                Query(quantile(q, controller("loop_duration_seconds", "bucket")), f"p{100 * q:.0f}")
                for q in (0.5, 0.95, 0.99)
            ),
            span=8,
        ),
        over_time(
            "Lag of the loop",
            "How late the last tick started. Above the interval, ticks are lost.",
            "s",
            Query(largest(value(controller("loop_lag_seconds")), "instance"), "{{instance}}"),
            span=8,
        ),
        over_time(
            "Reading all servers once",
            "Time for one reading of every server's metrics.",
            "s",
            *(
                Query(quantile(q, controller("scrape_seconds", "bucket")), f"p{100 * q:.0f}")
                for q in (0.5, 0.95)
            ),
            span=8,
        ),
        over_time(
            "Clock skew",
            "A server's clock minus the controller's. Decisions do not depend on it.",
            "s",
            Query(value(controller("clock_skew_seconds")), "{{target}}"),
            floor=None,
        ),
        over_time(
            "Servers under control",
            "Number of servers in the target lists.",
            "short",
            Query(largest(value(controller("targets")), "instance"), "{{instance}}"),
            step=True,
        ),
    ]
