"""The types of the API's answers, and the functions that build them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..actuators import ApplyResult
from ..core import BudgetState, Decision, Reason, SourceError, Table, TargetObservation
from ..service import Service
from ..state_file import Pin
from ..targets import Origin
from ..tracked import Tracked


@dataclass(frozen=True, slots=True)
class SpeedAtBudget:
    """The work of a server at one budget since its start: tokens and batch are means over its
    rounds there, all ranks together.
    """

    budget: int
    tokens_per_second: float
    mean_batch: float
    tau: float
    rounds: float


@dataclass(frozen=True, slots=True)
class TargetSummary:
    """One server in the list. `ready`: its load and budget could be read at the last tick. `budget`
    and `desired_budget` are for the batch that runs now.
    """

    id: str
    url: str
    origin: Origin
    ready: bool
    mode: str
    budget: int | None
    desired_budget: int | None
    table: Table
    reason: Reason | None
    running_requests: float | None
    waiting_requests: float | None
    tokens_per_second: float | None
    pin: Pin | None = None


@dataclass(frozen=True, slots=True)
class TargetDetail:
    """Everything about one server: inputs, decision, reason and result."""

    summary: TargetSummary
    decision: Decision | None
    observation: TargetObservation | None
    read_back: BudgetState | None
    last_apply: ApplyResult | None
    breaker: Annotated[
        int, Field(description="0: calls are sent, 1: a trial call is due, 2: calls are held back")
    ]
    speed: tuple[SpeedAtBudget, ...]
    faults: tuple[SourceError, ...]


@dataclass(frozen=True, slots=True)
class TargetList:
    """Servers by id, and the lists of servers that could not be read at the last tick. For these
    the last known content is used.
    """

    targets: tuple[TargetSummary, ...]
    paused: bool
    interval_s: float
    discovery_problems: Mapping[Origin, str]


class PinRequest(BaseModel):
    """Fix a server's budget for some time. The budget is rounded down to a tier."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"budget": 64, "ttl_s": 900, "reason": "comparing with a fixed budget"}]
        },
    )

    budget: int = Field(ge=1, le=4096, description="nodes per request per round, root included")
    ttl_s: float = Field(ge=1, le=30 * 86400, allow_inf_nan=False, description="seconds it holds")
    reason: str = Field("", max_length=500, description="kept in the audit log")


def summarise(service: Service, tracked: Tracked) -> TargetSummary:
    decision, observation = tracked.decision, tracked.observation
    target = tracked.target
    return TargetSummary(
        id=target.id,
        url=target.url,
        origin=target.origin,
        ready=tracked.ready,
        mode=tracked.mode,
        budget=tracked.budget_now,
        desired_budget=tracked.desired_now,
        table=() if tracked.read_back is None else tracked.read_back.table,
        reason=None if decision is None else decision.reason,
        running_requests=None if observation is None else observation.running_requests,
        waiting_requests=None if observation is None else observation.waiting_requests,
        tokens_per_second=None if observation is None else observation.tokens_per_second,
        pin=service.state.pins.get(target.id),
    )


def detail(service: Service, tracked: Tracked) -> TargetDetail:
    observation = tracked.observation
    return TargetDetail(
        summary=summarise(service, tracked),
        decision=tracked.decision,
        observation=observation,
        read_back=tracked.read_back,
        last_apply=tracked.last_apply,
        breaker=service.loop.actuator.breaker_level(tracked.target.id),
        speed=speed(observation),
        faults=() if observation is None else observation.errors,
    )


def speed(observation: TargetObservation | None) -> tuple[SpeedAtBudget, ...]:
    if observation is None or observation.counters is None:
        return ()
    return tuple(
        SpeedAtBudget(
            budget=counts.budget,
            tokens_per_second=counts.tokens / counts.seconds,
            mean_batch=counts.request_rounds / counts.rounds,
            tau=counts.tokens / counts.request_rounds,
            rounds=counts.rounds,
        )
        for counts in observation.counters.by_budget
        if counts.rounds > 0 and counts.seconds > 0 and counts.request_rounds > 0
    )
