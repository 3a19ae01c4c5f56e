"""The interface of an actuator, and the results of a control call. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from jetspec_controller.core import BudgetReadback, Decision
from jetspec_controller.targets import Target


class Outcome(StrEnum):
    """Result of sending a decision; after every value except the first, the decision is retried."""

    APPLIED = "applied"  # accepted, and the read-back shows it on every rank
    REFUSED = "refused"  # HTTP 200 with false in the body
    NOT_IN_FORCE = "not_in_force"  # accepted, but the read-back shows something else
    UNCONFIRMED = "unconfirmed"  # accepted, but the read-back failed
    TIMEOUT = "timeout"  # no answer: it may or may not have taken effect
    UNAUTHORISED = "unauthorised"
    DOWN = "down"
    HTTP = "http"
    PARSE = "parse"  # the answer is not one bool per rank
    BREAKER_OPEN = "breaker_open"  # held back after repeated failures
    BUSY = "busy"  # an earlier call to this server is still under way


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The outcome of sending one decision. `detail` is for people."""

    outcome: Outcome
    detail: str = ""
    read_back: BudgetReadback | None = None
    seconds: float = 0.0


class Actuator(Protocol):
    """Reads and sets the budget of servers."""

    async def read(self, target: Target) -> BudgetReadback:
        """The budget in force. Raises FetchError."""

    async def apply(self, target: Target, decision: Decision) -> ApplyResult:
        """Send a decision that `applies`, then read back. Raises nothing."""

    async def restore(self, target: Target, launch: BudgetReadback) -> ApplyResult:
        """Put back the budget or table a server had before it came under control."""

    def breaker_level(self, target_id: str) -> int:
        """0: calls are sent, 1: one trial call is due, 2: calls are held back."""

    def forget(self, target_id: str) -> None: ...
