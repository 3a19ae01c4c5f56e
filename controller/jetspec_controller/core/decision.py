"""One server, one tick: an observation and the carried state in, a decision and the next state out.

Pure and deterministic: no I/O, no clock, no randomness, so recorded observations replay exactly.
Whoever calls it reads the metrics before and sends the decision after.
"""

from __future__ import annotations

from dataclasses import replace

from .budgets import running
from .config import PolicyConfig
from .enums import Action, Governor, Reason
from .inputs import check
from .learning import learn
from .pace import moved
from .plan import plan
from .state import TargetState
from .types import BudgetState, Decision, TargetObservation
from .wish import Wish

PROBES = (Reason.PROBE, Reason.PROBE_BACK)

RESEND_GROWTH = 2.0
"""How much longer each wait is before a decision is sent again."""

SECOND_WRITER_AFTER = 2
"""Overwrites of late that make drift the work of a second writer."""

GIVE_UP_AFTER = 3
"""Times a decision is sent again before the read-back is taken as what is in force."""


def decide(
    config: PolicyConfig, observation: TargetObservation, state: TargetState, now: float
) -> tuple[Decision, TargetState]:
    """The decision for one server. ``now`` is the controller's clock, in seconds.

    Never raises on an observation: what cannot be used becomes the decision's reason.
    """
    inputs = check(config, observation, state, now)
    learnt = learn(config, observation, inputs, state, now)
    wish = plan(config, observation, inputs, state, learnt, now)
    action, reason, after = _reconcile(config, observation, wish, now)
    decision = Decision(
        target=observation.target,
        at=now,
        tick=after.tick,
        governor=config.governor,
        action=action,
        reason=reason,
        budget=wish.budget if wish.budget is not None else _running(observation, after),
        table=wish.table,
        explanation=wish.explanation,
    )
    return decision, after


def _reconcile(
    config: PolicyConfig, observation: TargetObservation, wish: Wish, now: float
) -> tuple[Action, Reason, TargetState]:
    """Sends a new wish at once; one sent before again while the read-back differs, ever slower."""
    state = wish.state
    if wish.budget is None:
        return Action.HOLD, wish.reason, state
    send = Action.SET_TABLE if wish.table else Action.SET_BUDGET
    reached = observation.budget is not None and _runs(observation.budget, wish)
    decided = replace(state, budget=wish.budget, table=wish.table)
    if config.governor is Governor.ADVISORY:
        return (Action.HOLD if reached else send), wish.reason, decided
    if reached:
        settled = replace(decided, restarted=False, resends=0, resend_at=None)
        return Action.HOLD, wish.reason, _paced(config, wish, settled, now)
    if state.table != wish.table or (not wish.table and state.budget != wish.budget):
        fresh = replace(decided, resends=0, resend_at=None)
        first = state.budget is None and observation.budget is None
        return (Action.HOLD if first else send), wish.reason, _paced(config, wish, fresh, now)
    if observation.budget is None:
        return Action.HOLD, wish.reason, decided
    contested = observation.overwrites >= SECOND_WRITER_AFTER
    waits = Reason.SECOND_WRITER if contested else Reason.NOT_APPLIED
    if state.resends >= GIVE_UP_AFTER:
        forgotten = replace(state, budget=None, table=(), resends=0, resend_at=None)
        return Action.HOLD, waits, forgotten
    if state.resend_at is not None and now < state.resend_at:
        return Action.HOLD, waits, decided
    again = replace(
        decided,
        resends=state.resends + 1,
        resend_at=now + config.interval_s * RESEND_GROWTH ** (state.resends + 1),
    )
    differs = Reason.SECOND_WRITER if contested else Reason.DRIFT_REAPPLY
    return send, Reason.RESTART_REAPPLY if state.restarted else differs, again


def _runs(read: BudgetState, wish: Wish) -> bool:
    wished = wish.table or ((1, wish.budget),)
    return read.consistent and running(read) == wished


def _running(observation: TargetObservation, state: TargetState) -> int | None:
    read = observation.budget or state.known
    return read.budget if read is not None else None


def _paced(config: PolicyConfig, wish: Wish, new: TargetState, now: float) -> TargetState:
    """Remembers a move for the dwell: of the uniform budget, or of any entry of the table."""
    old = wish.state
    if old.budget is None or new.budget is None or wish.reason in PROBES:
        return new
    if old.table != new.table:
        return replace(new, rose_at=now)
    return new if new.table else moved(config, new, old.budget, new.budget, now)
