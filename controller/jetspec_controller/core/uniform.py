"""One budget for the whole server: which candidate, and how far the rules let the budget change. No
I/O.

A cut acts at once. A rise must be wanted for some ticks. It waits a dwell after the last cut, rises
a few tiers per tick, and stays within measured budgets. :mod:`.probe` tries the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.enums import Clamp, Reason
from jetspec_controller.core.pace import rise_at
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import Candidate


@dataclass(frozen=True, slots=True)
class Choice:
    """A budget, why, and the state that remembers it."""

    budget: int
    reason: Reason
    state: TargetState
    clamps: tuple[Clamp, ...] = ()
    next_change_at: float | None = None


def fastest(options: Sequence[Candidate], current: int) -> Candidate:
    """The feasible option with the fewest seconds per token, the smaller budget when equal; above
    ``current`` only where τ is measured.
    """
    usable = [c for c in options if c.feasible and (c.budget <= current or not c.extrapolated)]
    return min(usable or options, key=lambda c: (c.token_s, c.budget))


def follow(
    config: PolicyConfig,
    target: str,
    goal: int,
    current: int,
    moving: Reason,
    state: TargetState,
    now: float,
) -> Choice:
    """Moves to ``goal``: at once if it is lower, after confirmation and dwell if it is higher."""
    if goal <= current:
        return Choice(goal, moving, replace(state, rise_ticks=0, rise_to=None))
    wait = _confirm(config, target, goal, current, state, now)
    if wait.reason is not Reason.FASTER_UP:
        return wait
    return replace(wait, reason=moving, state=replace(wait.state, rise_to=None))


def choose(
    config: PolicyConfig,
    target: str,
    options: Sequence[Candidate],
    current: int,
    kv_full: bool,
    state: TargetState,
    now: float,
) -> Choice:
    """Moves from ``current`` (one of the options) towards the fastest feasible option."""
    here = next(i for i, c in enumerate(options) if c.budget == current)
    best = fastest(options, current)
    forced = not options[here].feasible
    gain = 1.0 - best.token_s / options[here].token_s
    faster = [c for c in options if c.token_s < best.token_s]
    ruled_out = any(not c.feasible for c in faster)
    clamps = (Clamp.OBJECTIVE,) if ruled_out else ()
    if any(c.feasible for c in faster):
        clamps = (*clamps, Clamp.EVIDENCE)
    calm = replace(state, rise_ticks=0, rise_to=None)
    if best.budget == current:
        return Choice(current, Reason.OPTIMAL, calm, clamps)
    tolerance = config.tolerance_down if best.budget < current else config.tolerance_up
    if not forced and gain <= tolerance:
        return Choice(current, Reason.WITHIN_TOLERANCE, calm, clamps)
    if best.budget < current:
        to = options[max(options.index(best), here - config.step_down)]
        reason = Reason.OBJECTIVE if forced or ruled_out else Reason.FASTER_DOWN
        more = (Clamp.STEP_DOWN,) if to is not best else ()
        return Choice(to.budget, reason, calm, (*clamps, *more))
    if kv_full:
        return Choice(current, Reason.KV_PRESSURE, calm, (*clamps, Clamp.KV_PRESSURE))
    wait = _confirm(config, target, best.budget, current, state, now)
    if wait.reason is not Reason.FASTER_UP:
        return replace(wait, clamps=clamps)
    goal = max(i for i, c in enumerate(options) if c.budget <= wait.budget)
    to = options[min(goal, here + config.step_up)]
    if to.token_s >= options[here].token_s and not forced:
        return Choice(current, Reason.WITHIN_TOLERANCE, calm, clamps)
    reason = Reason.OBJECTIVE if forced else Reason.FASTER_UP
    more = (Clamp.STEP_UP,) if to is not options[goal] else ()
    return Choice(to.budget, reason, replace(wait.state, rise_to=None), (*clamps, *more))


def _confirm(
    config: PolicyConfig, target: str, goal: int, current: int, state: TargetState, now: float
) -> Choice:
    """FASTER_UP to the lowest budget that was wanted since the rise began, or the wait before
    it."""
    goal = min(goal, state.rise_to or goal)
    state = replace(state, rise_ticks=state.rise_ticks + 1, rise_to=goal)
    dwell_end = rise_at(config, state, target)
    missing = config.rise_after_ticks - state.rise_ticks
    if missing > 0:
        at = max(now + missing * config.interval_s, dwell_end)
        return Choice(current, Reason.CONFIRMING, state, next_change_at=at)
    if dwell_end > now:
        return Choice(current, Reason.DWELL, state, next_change_at=dwell_end)
    return Choice(goal, Reason.FASTER_UP, state)
