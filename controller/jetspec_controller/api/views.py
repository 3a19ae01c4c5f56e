"""The types of the API's answers, and the functions that build them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from jetspec_controller.actuators import ApplyResult
from jetspec_controller.core import (
    BudgetReadback,
    Decision,
    Reason,
    SourceError,
    Table,
    TargetObservation,
)
from jetspec_controller.managed import ManagedTarget
from jetspec_controller.service import Service
from jetspec_controller.state_file import Pin
from jetspec_controller.targets import Origin


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
    read_back: BudgetReadback | None
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


def summarise(service: Service, managed: ManagedTarget) -> TargetSummary:
    decision, observation = managed.decision, managed.observation
    target = managed.target
    return TargetSummary(
        id=target.id,
        url=target.url,
        origin=target.origin,
        ready=managed.ready,
        mode=managed.mode,
        budget=managed.budget_now,
        desired_budget=managed.desired_now,
        table=() if managed.read_back is None else managed.read_back.table,
        reason=None if decision is None else decision.reason,
        running_requests=None if observation is None else observation.running_requests,
        waiting_requests=None if observation is None else observation.waiting_requests,
        tokens_per_second=None if observation is None else observation.tokens_per_second,
        pin=service.state.pins.get(target.id),
    )


def detail(service: Service, managed: ManagedTarget) -> TargetDetail:
    observation = managed.observation
    return TargetDetail(
        summary=summarise(service, managed),
        decision=managed.decision,
        observation=observation,
        read_back=managed.read_back,
        last_apply=managed.last_apply,
        breaker=service.loop.actuator.breaker_level(managed.target.id),
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
