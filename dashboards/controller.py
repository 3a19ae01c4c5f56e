"""*JetSpec: controller*: what it decides and whether its decisions take effect. No I/O."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common

from dashboards.controller_rows import YES_NO, applies, exceptions, loop
from dashboards.frame import CONTROLLER, decided, frame
from dashboards.panels import Query, meanings, number, over_time, right_axis, row, states
from dashboards.promql import (
    controller,
    largest,
    rate,
    total,
    value,
)
from dashboards.variables import choice

DECISIONS = controller("decisions_total")
TARGET_UP = controller("target_up")


def dashboard() -> build.Dashboard:
    """The dashboard's builder."""
    made = frame(
        CONTROLLER,
        "Decisions and their reasons, pins and pause, the age of the signals, control calls and"
        " the loop itself. The controller is off the request path: while it is down, servers keep"
        " the budget they have.",
    )
    for variable in (
        choice("job", "Job", TARGET_UP.name, "job", "Scrape job of the controllers."),
        choice(
            "instance",
            "Instance",
            f'{TARGET_UP.name}{{job=~"$job"}}',
            "instance",
            "Controllers, by their address in Prometheus.",
        ),
        choice(
            "target",
            "Server",
            f'{TARGET_UP.name}{{job=~"$job", instance=~"$instance"}}',
            "target",
            "Servers under control, by the controller's name for them.",
        ),
    ):
        made = made.with_variable(variable)
    made = made.annotation(decided(DECISIONS))
    for title, panels in (
        ("Now", _now()),
        ("Decisions", _decisions()),
        ("Signals", _signals()),
        ("Control calls", applies()),
        ("Pins, pause and errors", exceptions()),
        ("The loop", loop()),
    ):
        made = made.with_row(row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def _now() -> list[Any]:
    success = largest(value(controller("last_success_timestamp_seconds")), "instance")
    return [
        number(
            "Servers readable",
            "Servers whose load and budget the last tick could read, of all under control.",
            "short",
            Query(total(value(TARGET_UP)), "readable"),
            Query(total(value(controller("targets"))), "of"),
            decimals=0,
            no_value="No controller here. Is it running, and is its /metrics scraped?",
        ),
        number(
            "Since every server was decided for",
            "Age of the last tick that could decide for every server. A few intervals is normal.",
            "s",
            Query(f"time() - {success}", "{{instance}}"),
            decimals=0,
            steps=((None, "green"), (30, "yellow"), (60, "red")),
        ),
        number(
            "Paused",
            "While paused, the controller changes no budget.",
            "short",
            Query(largest(value(controller("paused")))),
            mappings=[meanings({0: ("no", "green"), 1: ("paused", "orange")})],
        ),
        number(
            "Servers pinned",
            "Servers whose budget a person fixed through the API.",
            "short",
            Query(f"sum({value(controller('budget_pinned'))} > bool 0)"),
            decimals=0,
        ),
        number(
            "Breakers not closed",
            "Servers to which control calls are held back after repeated failures.",
            "short",
            Query(f"sum({value(controller('breaker_state'))} > bool 0)"),
            decimals=0,
            steps=((None, "green"), (1, "red")),
        ),
        number(
            "Version",
            "Version of the running controllers.",
            "short",
            Query(f"count by (version) ({value(controller('build_info'))})", "{{version}}"),
        )
        .text_mode(common.BigValueTextMode.NAME)
        .graph_mode(common.BigValueGraphMode.NONE),
    ]


def _decisions() -> list[Any]:
    per_minute = f"60 * {total(rate(DECISIONS), 'reason')}"
    changes = total(rate(DECISIONS, action="!hold"), "target", "action")
    return [
        over_time(
            "Budget decided and in force",
            "Both values are for the batch that runs now. They differ for a moment after a"
            " change. If they differ for longer, calls fail or somebody else sets budgets.",
            "short",
            Query(value(controller("budget_desired")), "decided {{target}}"),
            Query(value(controller("budget_current")), "in force {{target}}"),
            step=True,
            decimals=0,
        ),
        over_time(
            "Decisions by reason",
            "Decisions per minute. The reasons are explained in docs/operate.md.",
            "cpm",
            Query(per_minute, "{{reason}}"),
            stacked=True,
        ),
        over_time(
            "Changes by server",
            "Decisions per minute that changed a budget or a table.",
            "cpm",
            Query(f"60 * {changes}", "{{target}} {{action}}"),
        ),
        over_time(
            "Room below the budget",
            "Budget in force divided by the smallest one that the controller may choose. At 1 it"
            " cannot go lower. If the queue grows then, add servers.",
            "short",
            Query(
                f"{value(controller('budget_current'))} / {value(controller('budget_floor'))}",
                "{{target}}",
            ),
            step=True,
        ),
    ]


def _signals() -> list[Any]:
    errors = total(rate(controller("scrape_errors_total")), "signal", "reason")
    seen = controller("signal_value")
    rates = over_time(
        "Arrivals and tokens per second, as the controller saw them",
        "Requests per second (left), tokens per second (right).",
        "reqps",
        Query(value(seen, signal="=arrival_rate"), "arrivals {{target}}"),
        Query(value(seen, signal="=tokens_per_second"), "tokens {{target}}"),
    )
    return [
        over_time(
            "Requests, as the controller saw them",
            "Running and waiting requests that the last decision was based on, and the batch it"
            " expected. A gap means that the value could not be read.",
            "short",
            Query(
                value(seen, signal="~running_requests|waiting_requests|expected_batch"),
                "{{signal}} {{target}}",
            ),
        ),
        right_axis(rates, "B", "short", "tokens/s", step=False),
        over_time(
            "Age of the signals",
            "Oldest reading of each input. Above max_age_s (10 s unless configured) an input is"
            " stale and the budget is held. An input that cannot be read keeps its last age here:"
            " look at the errors.",
            "s",
            Query(largest(value(controller("signal_age_seconds")), "signal"), "{{signal}}"),
            span=8,
        ),
        over_time(
            "Inputs that could not be read",
            "Failures per second by input and reason.",
            "ops",
            Query(errors, "{{signal}} {{reason}}"),
            span=8,
        ),
        states(
            "Servers readable over time",
            "Whether the last tick knew a server's load and its budget.",
            Query(value(TARGET_UP), "{{target}}"),
            names=YES_NO,
            span=8,
        ),
    ]
