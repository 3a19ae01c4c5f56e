"""Whether only this controller changes a server's budget. No I/O.

A server's plan (its budget or table) changes when this controller sends one or when the server
restarts. Any other change is an overwrite: another controller, a script, a person.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .actuators import ApplyResult
from .core import BudgetState, Table
from .core.budgets import running

SPAN_S = 600.0
"""Overwrites older than this no longer count."""


@dataclass(slots=True)
class Writes:
    """`plan` is the plan that the server runs; None while it is not certain."""

    plan: Table | None = None
    _overwritten_at: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def read(self, state: BudgetState, *, ours: bool, now: float) -> None:
        """Process a read-back. `ours`: the server must run the same plan as before, because it has
        not restarted and this controller manages it.
        """
        plan = running(state) if state.consistent else None
        if ours and self.plan is not None and plan is not None and plan != self.plan:
            self._overwritten_at.append(now)
        self.plan = plan

    def sent(self, result: ApplyResult) -> None:
        """Take the outcome of a control call."""
        state = result.read_back
        self.plan = running(state) if state is not None and state.consistent else None

    def overwrites(self, now: float) -> int:
        """Overwrites of the last `SPAN_S` seconds."""
        while self._overwritten_at and self._overwritten_at[0] <= now - SPAN_S:
            self._overwritten_at.popleft()
        return len(self._overwritten_at)
