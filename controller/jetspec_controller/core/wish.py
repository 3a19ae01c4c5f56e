"""What a server should run and why, before it is compared with what it runs. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .enums import Reason
from .state import TargetState
from .table import lookup
from .types import Explanation, Table
from .uniform import Choice


@dataclass(frozen=True, slots=True)
class Wish:
    """A budget, or a table with its entry for the batch; budget None leaves the server alone."""

    budget: int | None
    table: Table
    reason: Reason
    state: TargetState
    explanation: Explanation

    def uniform(self, budget: int, reason: Reason) -> Wish:
        """This wish with one budget for every batch."""
        return replace(self, budget=budget, table=(), reason=reason)

    def tabled(self, table: Table, batch: float, reason: Reason) -> Wish:
        """This wish with a table; one entry alone is a uniform budget."""
        kept = table if len(table) > 1 else ()
        return replace(self, budget=lookup(table, batch), table=kept, reason=reason)

    def chosen(self, choice: Choice) -> Wish:
        """This wish with a uniform choice and its explanation."""
        return Wish(
            choice.budget,
            (),
            choice.reason,
            choice.state,
            replace(
                self.explanation,
                clamps=(*self.explanation.clamps, *choice.clamps),
                next_change_at=choice.next_change_at,
            ),
        )
