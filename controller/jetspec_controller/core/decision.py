"""One server, one tick: an observation and the carried state in, a decision and the next state out.

Pure and deterministic: no I/O, no clock, no randomness, so recorded observations replay exactly.
The caller reads the metrics before and sends the decision after.
"""

from __future__ import annotations

from dataclasses import replace

from jetspec_controller.core.budgets import running
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.desired import Desired
from jetspec_controller.core.enums import Action, Governor, Reason
from jetspec_controller.core.governor import govern
from jetspec_controller.core.inputs import check
from jetspec_controller.core.learning import learn
from jetspec_controller.core.pace import moved
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import BudgetReadback, Decision, TargetObservation

PROBES = (Reason.PROBE, Reason.PROBE_BACK)

RESEND_GROWTH = 2.0
"""Growth factor of the wait before a decision is sent again."""

SECOND_WRITER_AFTER = 2
"""Number of recent overwrites from which drift counts as a second writer."""

GIVE_UP_AFTER = 3
"""How often a decision is sent again before the read-back counts as the plan in force."""


def decide(
    config: PolicyConfig, observation: TargetObservation, state: TargetState, now: float
) -> tuple[Decision, TargetState]:
    """The decision for one server. ``now`` is the controller's clock, in seconds.

    No observation makes it raise: an unusable input becomes the reason of the decision.
    """
    inputs = check(config, observation, state, now)
    learnt = learn(config, observation, inputs, state, now)
    desired = govern(config, observation, inputs, state, learnt, now)
    action, reason, after = _reconcile(config, observation, desired, now)
    decision = Decision(
        target=observation.target,
        at=now,
        tick=after.tick,
        governor=config.governor,
        action=action,
        reason=reason,
        budget=desired.budget if desired.budget is not None else _running(observation, after),
        table=desired.table,
        explanation=desired.explanation,
    )
    return decision, after


def _reconcile(
    config: PolicyConfig, observation: TargetObservation, desired: Desired, now: float
) -> tuple[Action, Reason, TargetState]:
    """Sends a new desired state at once. While the read-back differs, sends it again with growing
    delays."""
    state = desired.state
    if desired.budget is None:
        return Action.HOLD, desired.reason, state
    send = Action.SET_TABLE if desired.table else Action.SET_BUDGET
    reached = observation.budget is not None and _runs(observation.budget, desired)
    decided = replace(state, budget=desired.budget, table=desired.table)
    if config.governor is Governor.ADVISORY:
        return (Action.HOLD if reached else send), desired.reason, decided
    if reached:
        settled = replace(decided, restarted=False, resends=0, resend_at=None)
        return Action.HOLD, desired.reason, _paced(desired, settled, now)
    if state.table != desired.table or (not desired.table and state.budget != desired.budget):
        fresh = replace(decided, resends=0, resend_at=None)
        first = state.budget is None and observation.budget is None
        return (Action.HOLD if first else send), desired.reason, _paced(desired, fresh, now)
    if observation.budget is None:
        return Action.HOLD, desired.reason, decided
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


def _runs(read: BudgetReadback, desired: Desired) -> bool:
    wanted = desired.table or ((1, desired.budget),)
    return read.consistent and running(read) == wanted


def _running(observation: TargetObservation, state: TargetState) -> int | None:
    read = observation.budget or state.known
    return read.budget if read is not None else None


def _paced(desired: Desired, new: TargetState, now: float) -> TargetState:
    """Stores the time of a move for the dwell: a move of the uniform budget, or of any table
    entry."""
    old = desired.state
    if old.budget is None or new.budget is None or desired.reason in PROBES:
        return new
    if old.table != new.table:
        return replace(new, rose_at=now)
    return new if new.table else moved(new, old.budget, new.budget, now)
