"""The bodies of SGLang's admin API, in and out. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jetspec_controller.core import BudgetReadback, Fault, Table
from jetspec_controller.http_client import FetchError

KEY = "jetspec_tree_budget"


def changes(budget: int, table: Table) -> dict[str, int]:
    """The values to set. The uniform budget clears any table. With a table it is the budget of the
    first entry, which is in force below the first batch. Then every entry follows.
    """
    if not table:
        return {KEY: budget}
    return {KEY: table[0][1], **{f"{KEY}.{batch}": entry for batch, entry in table}}


def launch_changes(state: BudgetReadback) -> dict[str, int]:
    """The values that bring a server to `state`."""
    return {KEY: state.budget, **{f"{KEY}.{batch}": entry for batch, entry in state.table}}


def taken(body: Any) -> bool:
    """Whether every rank accepted. Raises FetchError(PARSE) unless the body is a list of bools."""
    if not isinstance(body, list) or not body or not all(isinstance(item, bool) for item in body):
        raise FetchError(Fault.PARSE, f"not one bool per rank: {str(body)[:100]}")
    return all(body)


def budget_state(body: Any) -> BudgetReadback:
    """`internal_states[i]["jetspec"]` of every rank as one state: rank 0's, marked inconsistent
    if another rank says otherwise. Raises FetchError: EMPTY for a server without JETSPEC.
    """
    try:
        states = body["internal_states"]
        ranks = [state["jetspec"] for state in states if "jetspec" in state]
    except (KeyError, TypeError) as error:
        raise FetchError(Fault.PARSE, f"/server_info: {error!r}") from error
    if not ranks:
        raise FetchError(Fault.EMPTY, "/server_info has no jetspec state: not a JETSPEC server")
    parsed = [_rank_state(rank) for rank in ranks]
    first = parsed[0]
    same = len(ranks) == len(states) and all(
        (state.budget, state.table) == (first.budget, first.table) for state in parsed
    )
    return first if same else replace(first, consistent=False)


def _rank_state(rank: Any) -> BudgetReadback:
    try:
        table = {int(batch): int(budget) for batch, budget in dict(rank["table"] or {}).items()}
        return BudgetReadback(
            budget=int(rank["budget"]),
            tiers=tuple(sorted(int(tier) for tier in rank["tiers"])),
            max_budget=int(rank["max_budget"]),
            table=tuple(sorted(table.items())),
            width=rank.get("width"),
            block_size=rank.get("block_size"),
            rounds=rank.get("rounds"),
            last_refusal=rank.get("last_refusal"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FetchError(Fault.PARSE, f"jetspec state: {error!r}") from error
