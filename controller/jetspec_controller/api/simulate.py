"""`/v1/simulate`: the decision for a server under another load or policy.

Runs the loop's own `decide` on the server's present observation and state, with the given values.
Nothing is applied and nothing is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jetspec_controller.api.deps import ServiceDep, get_managed
from jetspec_controller.api.examples import CANDIDATES, TARGET, answers
from jetspec_controller.api.problems import ProblemError
from jetspec_controller.core import Candidate, Decision, Governor, Reason, SourceError, decide
from jetspec_controller.settings import TARGET_ID, explain, policy_for

router = APIRouter(prefix="/v1/simulate", tags=["simulate"])

Requests = Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)]


class WhatIf(BaseModel):
    """Loads to try, and policy keys to try them with."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"target": TARGET, "running_requests": [1, 8, 32], "policy": {}}]
        },
    )

    target: str = Field(pattern=TARGET_ID)
    running_requests: list[Requests] = Field(min_length=1, max_length=64)
    waiting_requests: Requests = 0
    arrival_rate: float | None = Field(
        None, ge=0, le=1e6, allow_inf_nan=False, description="requests/s; default: as observed"
    )
    policy: dict[str, Any] = Field(default_factory=dict, max_length=64)


@dataclass(frozen=True, slots=True)
class Outlook:
    """`best_budget` is the choice of the model. `budget` is the choice after the limits of this
    tick."""

    running_requests: float
    best_budget: int | None
    budget: int | None
    reason: str
    gain: float | None
    candidates: tuple[Candidate, ...]
    faults: tuple[SourceError, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    target: str
    outlooks: tuple[Outlook, ...]


OUTLOOK = Outlook(8.0, 16, 16, Reason.TABLE_UPDATE, 0.209, CANDIDATES, ())


@router.post("", responses=answers(Simulation(TARGET, (OUTLOOK,)), 404, 409, 422))
async def simulate(service: ServiceDep, asked: WhatIf) -> Simulation:
    """For each load: the candidates, the model's choice and what would be decided now."""
    managed = get_managed(service, asked.target)
    observation = managed.observation
    if observation is None:
        raise ProblemError(409, "not-observed", f"{asked.target} has not been observed yet")
    try:
        base = policy_for(service.settings.policy, managed.target.policy)
        policy = policy_for(base, {"governor": Governor.MODEL, **asked.policy})
    except ValidationError as error:
        raise ProblemError(422, "invalid-policy", f"policy.{explain(error)}") from error
    now = service.clock()

    def outlook(running: float) -> Outlook:
        changed = replace(
            observation,
            observed_at=now,
            running_requests=running,
            waiting_requests=asked.waiting_requests,
            arrival_rate=observation.arrival_rate
            if asked.arrival_rate is None
            else asked.arrival_rate,
        )
        decision, _ = decide(policy, changed, managed.state, now)
        return _outlook(running, decision)

    return Simulation(asked.target, tuple(map(outlook, asked.running_requests)))


def _outlook(running: float, decision: Decision) -> Outlook:
    explanation = decision.explanation
    return Outlook(
        running_requests=running,
        best_budget=explanation.best_budget,
        budget=decision.budget,
        reason=decision.reason,
        gain=explanation.gain,
        candidates=explanation.candidates,
        faults=explanation.faults,
    )
