"""The controller's state of one server between ticks. No I/O."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field, replace

from jetspec_controller.actuators import ApplyResult, Outcome
from jetspec_controller.core import (
    SECOND_WRITER_AFTER,
    BudgetReadback,
    Clamp,
    Decision,
    Fault,
    Reason,
    Signal,
    SourceError,
    Table,
    TargetObservation,
    TargetState,
)
from jetspec_controller.core.table import lookup
from jetspec_controller.http_client import FetchError
from jetspec_controller.targets import Target
from jetspec_controller.writes import Writes


@dataclass(slots=True)
class DecisionSummary:
    """One tick of one server, small enough to keep hundreds of; `result` comes with the apply.
    `budget` and `budget_before` are those of the batch that ran then.
    """

    id: str
    at: float
    target: str
    mode: str
    action: str
    reason: Reason
    budget: int | None
    table: Table
    budget_before: int | None
    batch: float | None
    batch_expected: float | None
    waiting: float | None
    tokens_per_second: float | None
    best_budget: int | None
    gain: float | None
    clamps: tuple[Clamp, ...]
    faults: tuple[SourceError, ...]
    result: Outcome | None = None
    detail: str = ""


@dataclass(slots=True)
class ManagedTarget:
    """One server under control."""

    target: Target
    history: deque[DecisionSummary]
    state: TargetState = field(default_factory=TargetState)
    observation: TargetObservation | None = None
    decision: Decision | None = None
    mode: str = ""
    read_back: BudgetReadback | None = None
    read_error: FetchError | None = None
    process_since: float | None = None
    last_apply: ApplyResult | None = None
    read_task: asyncio.Task[BudgetReadback] | None = None
    apply_task: asyncio.Task[None] | None = None
    writes: Writes = field(default_factory=Writes)
    contested: bool = False  # a second writer was seen recently

    def at_present(self, budget: int | None, table: Table) -> int | None:
        """The budget for the batch that runs now, from a uniform budget and a table."""
        if not table:
            return budget
        running = self.observation.running_requests if self.observation is not None else None
        if running is None or not math.isfinite(running):
            return budget
        return lookup(table, max(running, 1.0))

    @property
    def budget_now(self) -> int | None:
        """The budget in force for the present batch, by the last read-back."""
        read = self.read_back
        return None if read is None else self.at_present(read.budget, read.table)

    @property
    def desired_now(self) -> int | None:
        """The budget last decided, for the present batch."""
        decided = self.decision
        return None if decided is None else self.at_present(decided.budget, decided.table)

    @property
    def ready(self) -> bool:
        """Whether the last tick knew the load and the budget in force."""
        return (
            self.observation is not None
            and self.observation.budget is not None
            and all(error.signal is not Signal.LOAD for error in self.observation.errors)
        )

    def take_read(self, now: float, *, steered: bool) -> bool:
        """Use the read-back if it has arrived; True if it shows that the process is a new one (its
        count of rounds fell). `steered`: only this controller should set this server's budget.
        """
        task = self.read_task
        if task is None or not task.done():
            self.read_error = FetchError(Fault.TIMEOUT, "the read-back is still running")
            return False
        self.read_task = None
        error = task.exception()
        if error is not None:
            if not isinstance(error, FetchError):
                raise error
            self.read_error = error
            return False
        before, self.read_back, self.read_error = self.read_back, task.result(), None
        restarted = (
            before is not None
            and before.rounds is not None
            and self.read_back.rounds is not None
            and self.read_back.rounds < before.rounds
        )
        if self.process_since is None or restarted:
            self.process_since = now
        self.writes.read(self.read_back, ours=steered and not restarted, now=now)
        return restarted

    def newly_contested(self, now: float) -> bool:
        """Record whether there is a second writer. Returns True if this is new."""
        before = self.contested
        self.contested = self.writes.overwrites(now) >= SECOND_WRITER_AFTER
        return self.contested and not before

    def observed(self, observation: TargetObservation) -> TargetObservation:
        """The source's observation with the budget's read-back added."""
        if self.read_error is None:
            budget, errors = self.read_back, observation.errors
        else:
            problem = SourceError(Signal.BUDGET, self.read_error.fault, self.read_error.detail)
            budget, errors = None, (*observation.errors, problem)
        self.observation = replace(
            observation,
            budget=budget,
            started_at=self.process_since,
            overwrites=self.writes.overwrites(observation.observed_at),
            errors=errors,
        )
        return self.observation


def summary(
    identifier: str, decision: Decision, mode: str, managed: ManagedTarget
) -> DecisionSummary:
    """The part of a decision that is kept."""
    explanation = decision.explanation
    return DecisionSummary(
        id=identifier,
        at=decision.at,
        target=decision.target,
        mode=mode,
        action=decision.action,
        reason=decision.reason,
        budget=managed.at_present(decision.budget, decision.table),
        table=decision.table,
        budget_before=managed.budget_now,
        batch=explanation.batch_now,
        batch_expected=explanation.batch_expected,
        waiting=explanation.waiting,
        tokens_per_second=explanation.tokens_per_second,
        best_budget=explanation.best_budget,
        gain=explanation.gain,
        clamps=explanation.clamps,
        faults=explanation.faults,
    )
