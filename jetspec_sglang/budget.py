"""`TreeBudget`: the budget of the next round, and the changes that are allowed.

Pure state, no I/O and no SGLang: the worker asks it for the running batch's budget when it
prepares a round; the control hook changes it between rounds. A refused change changes
nothing and leaves its reason in `last_refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetspec_sglang.settings import Settings

KEY = "jetspec_tree_budget"
DEFAULT_TIERS = {"cuda": (1, 16, 32, 64, 128, 256), "cpu": (1, 2, 4, 8, 16, 32, 64)}
DEFAULT_MAX_BUDGET = {"cuda": 256, "cpu": 64}
DEFAULT_BUDGET = {"cuda": 64, "cpu": 16}


class BudgetRefusedError(ValueError):
    """A budget change that cannot be applied; the message says which field and why."""


@dataclass(frozen=True, slots=True)
class BudgetPlan:
    """A uniform budget, and a table {running batch from which on: budget} above it."""

    uniform: int
    table: tuple[tuple[int, int], ...] = ()

    def for_batch(self, running: int) -> int:
        """The budget for a batch of `running` requests."""
        budget = self.uniform
        for threshold, entry in self.table:
            if running < threshold:
                break
            budget = entry
        return budget

    @property
    def budgets(self) -> tuple[int, ...]:
        """Every budget that some batch size runs at."""
        return (self.uniform, *(entry for _, entry in self.table))


class TreeBudget:
    """The plan in force, checked against what the server was started with."""

    def __init__(
        self,
        *,
        budget: int,
        table: Mapping[int, int],
        tiers: tuple[int, ...],
        max_budget: int,
    ) -> None:
        self.max_budget = max_budget
        self.tiers = tuple(tier for tier in tiers if tier <= max_budget)
        if not self.tiers or self.tiers[0] != 1:
            self.tiers = (1, *self.tiers)
        self.last_refusal: str | None = None
        self.plan = BudgetPlan(self._checked("budget", budget))
        self.plan = BudgetPlan(
            self.plan.uniform,
            tuple(
                (threshold, self._checked(f"table.{threshold}", entry))
                for threshold, entry in sorted(table.items())
            ),
        )

    @classmethod
    def from_settings(cls, settings: Settings, device: str, max_budget: int) -> TreeBudget:
        """The start budget of a server on `device` ("cuda" or "cpu").

        Raises ValueError naming the setting that is above `max_budget`, the launch maximum.
        """
        try:
            return cls(
                budget=settings.budget or min(DEFAULT_BUDGET[device], max_budget),
                table=settings.table,
                tiers=settings.tiers or DEFAULT_TIERS[device],
                max_budget=max_budget,
            )
        except BudgetRefusedError as refusal:
            raise ValueError(
                f"JETSPEC_SETTINGS: {refusal} (set by --speculative-num-draft-tokens)"
            ) from None

    def for_batch(self, running: int) -> int:
        """Nodes per request in the next round of `running` requests."""
        return self.plan.for_batch(running)

    def validate(self, updates: Mapping[str, Any]) -> BudgetPlan:
        """The plan after `updates`, a mapping of `jetspec_tree_budget` and
        `jetspec_tree_budget.<running>` to budgets.

        A uniform budget clears the table; table entries given with it or alone are added.
        Raises BudgetRefusedError and records the reason; nothing is applied.
        """
        try:
            return self._planned(updates)
        except BudgetRefusedError as refusal:
            self.last_refusal = str(refusal)
            raise

    def apply(self, plan: BudgetPlan) -> bool:
        """Put a validated plan in force; returns whether it differs from the one before."""
        changed = plan != self.plan
        self.plan = plan
        self.last_refusal = None
        return changed

    def snapshot(self) -> dict[str, Any]:
        """The read-back part that this state knows."""
        return {
            "budget": self.plan.uniform,
            "table": {str(threshold): entry for threshold, entry in self.plan.table},
            "tiers": list(self.tiers),
            "max_budget": self.max_budget,
            "last_refusal": self.last_refusal,
        }

    def _planned(self, updates: Mapping[str, Any]) -> BudgetPlan:
        uniform, table = self.plan.uniform, dict(self.plan.table)
        if KEY in updates:
            uniform, table = self._checked(KEY, updates[KEY]), {}
        for key, value in updates.items():
            if key == KEY:
                continue
            table[_threshold(key)] = self._checked(key, value)
        return BudgetPlan(uniform, tuple(sorted(table.items())))

    def _checked(self, field: str, value: Any) -> int:
        # The comparison comes first: it holds for neither NaN nor an integer too large for float.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 1 <= value <= self.max_budget or value != int(value):
            raise BudgetRefusedError(
                f"{field} = {_short(value)}: must be a whole number from 1 to {self.max_budget}"
            )
        return int(value)


def _threshold(key: str) -> int:
    prefix, _, text = key.partition(".")
    digits = text.isascii() and text.isdigit() and len(text) <= 6
    if prefix != KEY or not digits or not 1 <= int(text) <= 100_000:
        raise BudgetRefusedError(
            f"{_short(key)} is not a budget key; allowed: {KEY} and {KEY}.<running requests>, from 1 on"
        )
    return int(text)


def _short(value: Any) -> str:
    """repr of a refused value, shortened for the log."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return "a number with thousands of digits"
    return text if len(text) <= 80 else text[:77] + "..."
