"""The budget that a server should run: first the governor decides, then faults, then the model.

No I/O. :mod:`.decision` compares the desired state with the read-back.
"""

from __future__ import annotations

from dataclasses import replace

from jetspec_controller.core import optimise, table
from jetspec_controller.core.budgets import allowed_budgets, at_most, in_force
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.desired import Desired
from jetspec_controller.core.enums import Governor, Reason
from jetspec_controller.core.inputs import Inputs, number
from jetspec_controller.core.learning import load_now
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import Explanation, TargetObservation
from jetspec_controller.core.uniform import follow


def govern(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    before: TargetState,
    state: TargetState,
    now: float,
) -> Desired:
    """The desired state of this tick. ``state`` has learnt from the observation, ``before`` has not."""
    explanation = Explanation(
        waiting=number(observation.waiting_requests),
        arrival_rate=state.arrival_rate,
        output_tokens=state.output_tokens,
        token_usage=number(observation.token_usage),
        tokens_per_second=number(observation.tokens_per_second),
        faults=inputs.faults,
        overwrites=observation.overwrites,
    )
    if config.governor is Governor.OFF:
        forgotten = replace(state, budget=None, table=())
        return Desired(None, (), Reason.OFF, forgotten, explanation)
    if state.known is None:
        return Desired(None, (), inputs.blocked or Reason.BUDGET_UNKNOWN, state, explanation)
    allowed = allowed_budgets(config, state.known)
    if not allowed:
        return Desired(None, (), Reason.NO_TIER_IN_RANGE, state, explanation)

    running = table.compress(in_force(config, state, state.known))
    kept = table.fit(running, allowed)
    held = Desired(None, (), Reason.OPTIMAL, state, explanation).tabled(
        kept, state.batch or 0.0, Reason.OPTIMAL
    )
    if config.governor is Governor.PINNED and config.pinned_budget is not None:
        return held.uniform(at_most(allowed, config.pinned_budget), Reason.PINNED)
    hand_set = table.fit(tuple(config.table.items()), allowed) if config.table else ()
    if config.governor is Governor.TABLE and config.publish_table:
        return held.tabled(hand_set, state.batch or 0.0, Reason.CONFIGURED_TABLE)
    if kept != running:
        return replace(held, reason=Reason.OUT_OF_RANGE)
    if inputs.blocked is not None:
        return _blocked(config, inputs.blocked, allowed, held, now)
    if inputs.restarted:
        return replace(held, reason=Reason.SERVER_RESTARTED)

    load = load_now(observation, inputs, before, state)
    held = replace(
        held, explanation=replace(explanation, batch_now=load.batch, batch_expected=load.batch)
    )
    if config.governor is Governor.TABLE and held.budget is not None:
        goal = table.lookup(hand_set, min(load.batch + load.waiting, load.limit))
        choice = follow(
            config, observation.target, goal, held.budget, Reason.CONFIGURED_TABLE, state, now
        )
        return held.chosen(choice)
    return optimise.optimise(config, observation, inputs, allowed, kept, load, held, now)


def _blocked(
    config: PolicyConfig, reason: Reason, allowed: tuple[int, ...], held: Desired, now: float
) -> Desired:
    """Holds the budget. After ``hold_s`` it falls back, but never to a larger budget. A table in
    force is kept, because the engine follows its own batch without metrics.
    """
    state = replace(held.state, rise_ticks=0, rise_to=None)
    usable_at = state.usable_at if state.usable_at is not None else now
    if held.table or held.budget is None or now - usable_at < config.hold_s:
        return replace(held, reason=reason, state=state)
    above_plain = [b for b in allowed if b > 1] or list(allowed)
    safe = at_most(allowed, config.fallback_budget or above_plain[0])
    return replace(held, state=state).uniform(min(held.budget, safe), Reason.FALLBACK)
