"""*JetSpec: TPS versus budget*: the speed of each budget, at which load, and its cost. No I/O."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build

from dashboards.frame import TPS, decided, engine_variables, frame, plan_changes
from dashboards.panels import row
from dashboards.promql import controller
from dashboards.tps_costs import batch, rounds, service, speed_up
from dashboards.tps_rows import accepted, now, throughput
from dashboards.variables import choice, one_of
from jetspec_sglang.metric_list import ROUNDS

TTFT_BOUNDS = ["0.1", "0.2", "0.4", "0.6", "0.8", "1", "2", "4", "6", "8", "10", "20"]
TPOT_BOUNDS = ["0.01", "0.02", "0.03", "0.04", "0.06", "0.08", "0.1", "0.2", "0.4", "0.8"]


def dashboard() -> build.Dashboard:
    """The dashboard's builder."""
    made = frame(
        TPS,
        "Tokens per second by tree budget, beside the load and the budget's changes; accepted"
        " length, cost of a round, speed-up over plain decoding, and the service levels. Start"
        " with one model: a curve over several models has one line for each.",
    )
    for variable in (*engine_variables(ROUNDS.name), *_variables()):
        made = made.with_variable(variable)
    decisions = controller("decisions_total", any_job=True)
    for annotation in (plan_changes(), decided(decisions)):
        made = made.annotation(annotation)
    for title, panels in (
        ("Now", now()),
        ("Tokens per second against budget", throughput()),
        ("Accepted length", accepted()),
        ("Batch and budget", batch()),
        ("Speed-up over plain decoding (estimate)", speed_up()),
        ("Service levels", service()),
        ("Inside a round", rounds()),
    ):
        made = made.with_row(row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return made


def _variables() -> list[build.QueryVariable | build.CustomVariable]:
    return [
        choice(
            "budget",
            "Budget",
            f'{ROUNDS.name}{{job=~"$job", instance=~"$instance", model_name=~"$model"}}',
            "budget",
            "Budgets the servers have run; 1 is plain decoding.",
            numeric=True,
        ),
        choice(
            "target",
            "Controller's server",
            controller("target_up").name,
            "target",
            "The controller's names of the servers; selects its decisions among the marks.",
        ),
        one_of(
            "ttft_bound",
            "TTFT bound (s)",
            TTFT_BOUNDS,
            "2",
            "A request is on time if its first token came within this. Must be one of SGLang's"
            " bucket edges (--bucket-time-to-first-token).",
        ),
        one_of(
            "tpot_bound",
            "TPOT bound (s)",
            TPOT_BOUNDS,
            "0.1",
            "A request is on time if each further token took at most this on average. Must be one"
            " of SGLang's bucket edges (--bucket-inter-token-latency).",
        ),
    ]
