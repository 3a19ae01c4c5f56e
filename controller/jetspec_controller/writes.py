"""Whether only this controller changes a server's budget. No I/O.

What a server runs (its budget or table) changes when this controller sends one or when the server
restarts. Any other change is an overwrite: another controller, a script, a person.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jetspec_controller.actuators import ApplyResult
from jetspec_controller.core import BudgetReadback, Table
from jetspec_controller.core.budgets import running

SPAN_S = 600.0
"""Overwrites older than this no longer count."""


@dataclass(slots=True)
class Writes:
    """`in_force` is the plan that the server runs; None while it is not certain."""

    in_force: Table | None = None
    _overwritten_at: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def read(self, state: BudgetReadback, *, ours: bool, now: float) -> None:
        """Process a read-back. `ours`: the server must run the same plan as before, because it has
        not restarted and this controller manages it.
        """
        table = running(state) if state.consistent else None
        if ours and self.in_force is not None and table is not None and table != self.in_force:
            self._overwritten_at.append(now)
        self.in_force = table

    def sent(self, result: ApplyResult) -> None:
        """Take the outcome of a control call."""
        state = result.read_back
        self.in_force = running(state) if state is not None and state.consistent else None

    def overwrites(self, now: float) -> int:
        """Overwrites of the last `SPAN_S` seconds."""
        while self._overwritten_at and self._overwritten_at[0] <= now - SPAN_S:
            self._overwritten_at.popleft()
        return len(self._overwritten_at)
