"""The common parts of dashboards: identity, links, time range, variables, marks. No I/O."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.promql import RATE, Series, engine, events, once, total
from dashboards.variables import TAG, Annotation, choice, datasource, link
from jetspec_sglang.metric_list import BUDGET_CHANGES

TPS = "jetspec-tps-budget"
CONTROLLER = "jetspec-controller"
ENGINE = "jetspec-engine"

TITLES = {
    TPS: "JetSpec: TPS versus budget",
    CONTROLLER: "JetSpec: controller",
    ENGINE: "JetSpec: engine",
}
QUESTIONS = {
    TPS: "What does each tree budget yield, and at which load?",
    CONTROLLER: "What does the controller decide, and do its decisions take effect?",
    ENGINE: "How are SGLang's queues, memory and latencies?",
}


def frame(uid: str, text: str) -> build.Dashboard:
    """A dashboard without panels. `uid` is stable: links and bookmarks hold it."""
    made = (
        build.Dashboard(TITLES[uid])
        .uid(uid)
        .description(text)
        .tags([TAG])
        .readonly()
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(datasource())
    )
    for other, title in TITLES.items():
        if other != uid:
            made = made.link(
                link(title, other, QUESTIONS[other], same_servers=CONTROLLER not in (uid, other))
            )
    return made


def engine_variables(name: str) -> list[build.QueryVariable]:
    """Job, instance and model of the servers that export the series `name`."""
    return [
        choice(
            "job", "Job", name, "job", "Scrape job of the servers. Empty: no server is scraped."
        ),
        choice(
            "instance",
            "Instance",
            f'{name}{{job=~"$job"}}',
            "instance",
            "Servers of the job, by their address in Prometheus.",
        ),
        choice(
            "model",
            "Model",
            f'{name}{{job=~"$job", instance=~"$instance"}}',
            "model_name",
            "Served model names. Curves of several models have one line for each.",
        ),
    ]


def plan_changes() -> Annotation:
    """A mark where a server changed its budget or table, whoever sent the change."""
    plan = engine(BUDGET_CHANGES)
    changes = total(once(plan, f"increase({plan.select()}[{RATE}])"), "instance")
    return Annotation(
        "Budget plan changed (engine)",
        f"{changes} > 0",
        "orange",
        "Budget plan changed",
        "{{instance}}",
    )


def decided(decisions: Series) -> Annotation:
    """A mark where the controller decided a change, with its reason."""
    return Annotation(
        "Controller's decision",
        events(decisions, "target", "reason", action="!hold"),
        "blue",
        "{{reason}}",
        "{{target}}",
    )
