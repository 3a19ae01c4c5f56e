"""The budgets that a server may run, and the plan that it is assumed to run. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.enums import Governor
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import BudgetReadback, Table


def allowed_budgets(config: PolicyConfig, known: BudgetReadback) -> tuple[int, ...]:
    """The server's tiers within its maximum and the configured range, ascending."""
    high = min(config.max_budget, known.max_budget)
    return tuple(sorted(t for t in set(known.tiers) if config.min_budget <= t <= high))


def at_most(allowed: Sequence[int], budget: int) -> int:
    """The largest allowed budget up to ``budget``; the smallest one when all are larger."""
    return max((b for b in allowed if b <= budget), default=allowed[0])


def running(read: BudgetReadback) -> Table:
    """What a read-back says as one table: its uniform budget holds below the first entry."""
    if read.table and read.table[0][0] <= 1:
        return read.table
    return ((1, read.budget), *read.table)


def in_force(config: PolicyConfig, state: TargetState, known: BudgetReadback) -> Table:
    """The table from which the next move starts; a uniform budget is one entry. This is the last
    decision. Before the first decision, and if nothing is ever applied, it is the read-back.
    """
    if state.budget is None or config.governor is Governor.ADVISORY:
        return running(known)
    return state.table or ((1, state.budget),)
