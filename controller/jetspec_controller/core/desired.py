"""The desired plan of a server and its reason, before the comparison with the plan that it runs. No
I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jetspec_controller.core.enums import Reason
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.table import lookup
from jetspec_controller.core.types import Explanation, Table
from jetspec_controller.core.uniform import Choice


@dataclass(frozen=True, slots=True)
class Desired:
    """A budget, or a table with its entry for the batch; budget None leaves the server alone."""

    budget: int | None
    table: Table
    reason: Reason
    state: TargetState
    explanation: Explanation

    def uniform(self, budget: int, reason: Reason) -> Desired:
        """This state with one budget for every batch."""
        return replace(self, budget=budget, table=(), reason=reason)

    def tabled(self, table: Table, batch: float, reason: Reason) -> Desired:
        """This state with a table; one entry alone is a uniform budget."""
        kept = table if len(table) > 1 else ()
        return replace(self, budget=lookup(table, batch), table=kept, reason=reason)

    def chosen(self, choice: Choice) -> Desired:
        """This state with a uniform choice and its explanation."""
        return Desired(
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
