"""Which budgets a server may run, and which it is taken to run. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from .config import PolicyConfig
from .enums import Governor
from .state import TargetState
from .types import BudgetState, Table


def allowed_budgets(config: PolicyConfig, known: BudgetState) -> tuple[int, ...]:
    """The server's tiers within its maximum and the configured range, ascending."""
    high = min(config.max_budget, known.max_budget)
    return tuple(sorted(t for t in set(known.tiers) if config.min_budget <= t <= high))


def at_most(allowed: Sequence[int], budget: int) -> int:
    """The largest allowed budget up to ``budget``; the smallest one when all are larger."""
    return max((b for b in allowed if b <= budget), default=allowed[0])


def in_force(config: PolicyConfig, state: TargetState, known: BudgetState) -> Table:
    """The table to move from; one entry for a uniform budget. What was decided last counts, the
    read-back only before the first decision and when nothing is ever applied.
    """
    if state.budget is None or config.governor is Governor.ADVISORY:
        return known.table or ((1, known.budget),)
    return state.table or ((1, state.budget),)
