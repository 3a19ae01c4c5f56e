"""Example answers for the OpenAPI schema: one server with 8 running requests. No I/O.

They use the same types as the routes. FastAPI leaves out nulls, so only optional values are None
here.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from jetspec_controller.actuators import ApplyResult, Outcome
from jetspec_controller.api.problems import responses
from jetspec_controller.api.views import SpeedAtBudget, TargetDetail, TargetList, TargetSummary
from jetspec_controller.core import (
    AcceptCurve,
    AcceptPoint,
    Action,
    BudgetCounters,
    BudgetReadback,
    Candidate,
    Clamp,
    CostCurve,
    CostPoint,
    CostSource,
    Decision,
    Explanation,
    Governor,
    Reason,
    RoundCounters,
    Signal,
    TargetObservation,
)
from jetspec_controller.managed import DecisionSummary
from jetspec_controller.state_file import Pin
from jetspec_controller.targets import Origin

TARGET = "10.0.0.1:30000"
AT = 1_764_460_800.0
TABLE = ((1, 32), (4, 16))

PIN = Pin(TARGET, 64, "ops", "comparing with a fixed budget", AT - 60.0, AT + 840.0)

CANDIDATES = (
    Candidate(16, 8.0, 2.74, 0.0470, 0.01715, extrapolated=False),
    Candidate(32, 8.0, 2.95, 0.0640, 0.02169, extrapolated=False, doubt=0.04),
    Candidate(64, 8.0, 3.07, 0.1030, 0.03355, extrapolated=True, doubt=0.11),
)
"""Example of one server whose rounds cost less per row than before."""

COST = CostCurve((CostPoint(128.0, 0.047), CostPoint(256.0, 0.064)), CostSource.GAUGES)

READ_BACK = BudgetReadback(32, (1, 16, 32, 64), 64, TABLE, width=8, block_size=16, rounds=5120)

DECISION = Decision(
    TARGET,
    AT,
    42,
    Governor.MODEL,
    Action.SET_TABLE,
    Reason.TABLE_UPDATE,
    16,
    TABLE,
    Explanation(
        batch_now=8.0,
        batch_expected=8.0,
        waiting=0.0,
        arrival_rate=0.9,
        output_tokens=180.0,
        token_usage=0.21,
        tokens_per_second=460.0,
        candidates=CANDIDATES,
        best_budget=16,
        gain=0.209,
        confidence=0.97,
        clamps=(Clamp.EVIDENCE,),
        accept=AcceptCurve((AcceptPoint(16, 2.74, 1650.0, 1.2), AcceptPoint(32, 2.95, 800.0, 3.1))),
        cost=COST,
    ),
)

OBSERVATION = TargetObservation(
    TARGET,
    AT,
    running_requests=8.0,
    waiting_requests=0.0,
    max_running_requests=16.0,
    token_usage=0.21,
    arrival_rate=0.9,
    mean_output_tokens=180.0,
    tokens_per_second=460.0,
    budget=READ_BACK,
    counters=RoundCounters(
        (BudgetCounters(32, 640.0, 5120.0, 15104.0, 40.96, (5120.0, 9984.0)),), (2, 32)
    ),
    cost=COST,
    ages=((Signal.LOAD, 0.2), (Signal.ROUNDS, 0.4)),
)

APPLIED = ApplyResult(Outcome.APPLIED, "", READ_BACK, 0.012)

SUMMARY = DecisionSummary(
    id="692b8880-42",
    at=AT,
    target=TARGET,
    mode=Governor.MODEL,
    action=Action.SET_TABLE,
    reason=Reason.TABLE_UPDATE,
    budget=16,
    table=TABLE,
    budget_before=32,
    batch=8.0,
    batch_expected=8.0,
    waiting=0.0,
    tokens_per_second=460.0,
    best_budget=16,
    gain=0.209,
    clamps=(Clamp.EVIDENCE,),
    faults=(),
    result=Outcome.APPLIED,
)

TARGET_SUMMARY = TargetSummary(
    id=TARGET,
    url=f"http://{TARGET}",
    origin=Origin.STATIC,
    ready=True,
    mode=Governor.MODEL,
    budget=16,
    desired_budget=16,
    table=TABLE,
    reason=Reason.TABLE_UPDATE,
    running_requests=8.0,
    waiting_requests=0.0,
    tokens_per_second=460.0,
)

TARGET_LIST = TargetList(
    targets=(TARGET_SUMMARY,),
    paused=False,
    interval_s=2.0,
    discovery_problems={Origin.FILE: "down: targets.json: No such file or directory"},
)

TARGET_DETAIL = TargetDetail(
    summary=TARGET_SUMMARY,
    decision=DECISION,
    observation=OBSERVATION,
    read_back=READ_BACK,
    last_apply=APPLIED,
    breaker=0,
    speed=(SpeedAtBudget(32, 368.8, 8.0, 2.95, 640.0),),
    faults=(),
)


def answers(example: object, *problems: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI entries of a route that answers as in the example, or with those problems."""
    shown = TypeAdapter(type(example)).dump_python(example, mode="json")
    return {200: {"content": {"application/json": {"example": shown}}}, **responses(*problems)}
