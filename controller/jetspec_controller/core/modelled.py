"""The wish of the model governor: the fastest budget, or the fastest table, under the rules.

No I/O. Without a curve it holds, or takes one small step to measure one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from . import accept, cost, probe, table
from .accept import AcceptModel
from .budgets import at_most
from .config import PolicyConfig
from .cost import CostModel
from .enums import Clamp, Reason
from .inputs import Inputs, number
from .load import Load
from .model import SpeedModel, build, candidates
from .pace import spread
from .state import TargetState
from .types import RANK_EDGES, AcceptCurve, Candidate, Table, TargetObservation
from .uniform import choose, fastest
from .wish import Wish

LITTLE_RANGE = (0.25, 4.0)
"""How far Little's law may be scaled to the batch seen."""


def plan(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    allowed: tuple[int, ...],
    in_force: Table,
    load: Load,
    held: Wish,
    now: float,
) -> Wish:
    """The model's wish, from the table or uniform budget in force."""
    state = held.state
    edges = inputs.counters.edges if inputs.counters is not None else RANK_EDGES
    taus = accept.model(config, state.accept, edges, now)
    # Once rounds are measured one by one, averages over rows would only count them again.
    curve = state.base if state.cost else inputs.cost or state.base
    costs = cost.model(config, curve, state.cost, now)
    current = at_most(allowed, table.lookup(in_force, load.batch))
    if taus is None or (allowed[0] == current == 1 and taus.measured <= 1 and not held.table):
        up = allowed[1:2] if current == 1 else ()
        return _explore(config, observation.target, up, Reason.NO_ACCEPT_CURVE, held, now)
    if costs is None:
        here = allowed.index(current)
        step = allowed[here - 1 : here] if here else allowed[1:2]
        return _explore(config, observation.target, step, Reason.NO_COST_CURVE, held, now)

    speed = build(allowed, taus, costs)
    state = replace(state, little=_little(config, speed, load, current, state))
    load, held = replace(load, scale=state.little), replace(held, state=state)
    options = candidates(config, speed, load, observation.latency, current)
    if config.publish_table:
        wish = _table(
            config, observation, inputs, speed, in_force, current, options, load, held, now
        )
    else:
        wish = _uniform(config, observation, inputs, speed, current, options, load, held, now)
    return _explained(wish, options, current, taus, costs, load)


def _little(
    config: PolicyConfig, speed: SpeedModel, load: Load, current: int, state: TargetState
) -> float:
    """The batch seen by that of Little's law, smoothed like the load; kept while idle."""
    if load.batch < 1 or not load.arrival_rate or not load.output_tokens:
        return state.little
    here = speed.budgets == current
    token_s = float(speed.token_s(np.array([load.batch]))[here][0])
    seen = load.batch / (load.arrival_rate * load.output_tokens * token_s)
    keep = math.pow(0.5, config.interval_s / config.load_half_life_s)
    return min(max(seen + keep * (state.little - seen), LITTLE_RANGE[0]), LITTLE_RANGE[1])


def _uniform(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    speed: SpeedModel,
    current: int,
    options: Sequence[Candidate],
    load: Load,
    held: Wish,
    now: float,
) -> Wish:
    name, state = observation.target, held.state
    kv_full = (number(observation.token_usage) or 0.0) >= config.kv_high_water
    origin = current
    if state.probe_budget is not None and state.probe_budget == current:
        won = None
        if probe.measured(state, inputs.fresh, speed.measured):
            won = _won(speed, state)
        elif probe.near(state, _at(options, current).batch) and not probe.expired(state, now):
            return held.uniform(current, Reason.PROBING)
        if not won and any(c.budget == state.probe_from for c in options):
            origin = state.probe_from
        state = probe.end(config, name, won, state, now)
    state = replace(state, probe_budget=None)
    choice = choose(config, name, options, origin, kv_full, state, now)
    if choice.budget == origin != current:
        choice = replace(choice, reason=Reason.PROBE_BACK)
    elif choice.reason in (Reason.OPTIMAL, Reason.WITHIN_TOLERANCE) and load.batch > 0:
        trial = probe.propose(config, options, current, not kv_full, choice.state, now)
        if trial is not None:
            batch = _at(options, current).batch
            state = probe.begin(config, trial, current, (), batch, choice.state, now)
            choice = replace(choice, budget=trial, reason=Reason.PROBE, state=state)
    return held.chosen(choice)


def _table(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    speed: SpeedModel,
    in_force: Table,
    current: int,
    options: Sequence[Candidate],
    load: Load,
    held: Wish,
    now: float,
) -> Wish:
    name, state = observation.target, held.state
    batch = max(load.batch, 1.0)
    kv_full = (number(observation.token_usage) or 0.0) >= config.kv_high_water
    limit = table.largest(number(observation.max_running_requests))
    reason = Reason.OPTIMAL
    if state.probe_budget is not None:
        won = None
        if probe.measured(state, inputs.fresh, speed.measured):
            won = _won(speed, state)
        elif not probe.expired(state, now) and not probe.left(state, batch):
            return held.tabled(in_force, batch, Reason.PROBING)
        if not won:
            in_force = state.probe_table or in_force
            reason = Reason.PROBE_BACK
        state = probe.end(config, name, won, state, now)
    settles = max(state.rose_at or float("-inf"), state.cut_at or float("-inf")) + config.dwell_s
    rises = not kv_full and settles <= now
    wish = table.compute(config, speed, batch, limit, in_force, observation.latency, current, rises)
    if wish != in_force:
        reason = Reason.TABLE_UPDATE
    if reason is Reason.OPTIMAL and load.batch > 0:
        trial = probe.propose(config, options, current, not kv_full, state, now)
        if trial is not None:
            state = probe.begin(config, trial, current, wish, batch, state, now)
            wish = table.with_entry(wish, batch, trial, limit)
            reason = Reason.PROBE
    explanation = replace(held.explanation, next_change_at=None if rises else settles)
    return replace(held, state=state, explanation=explanation).tabled(wish, batch, reason)


def _at(options: Sequence[Candidate], budget: int) -> Candidate:
    return next(c for c in options if c.budget == budget)


def _won(speed: SpeedModel, state: TargetState) -> bool:
    """Whether the probed budget is at least as fast at its batch as the one it came from."""
    token_s = dict(zip(speed.budgets, speed.token_s(np.array([state.probe_batch])), strict=True))
    tried, origin = token_s.get(state.probe_budget), token_s.get(state.probe_from)
    return tried is None or origin is None or bool(tried <= origin)


def _explore(
    config: PolicyConfig, target: str, step: Sequence[int], missing: Reason, held: Wish, now: float
) -> Wish:
    """One step to ``step`` (empty: none helps) to measure the missing curve, then a wait."""
    state = held.state
    if not step or (state.explore_at is not None and state.explore_at > now):
        at = state.explore_at if step else None
        explanation = replace(held.explanation, next_change_at=at)
        return replace(held, reason=missing, explanation=explanation)
    wait = config.probe_interval_s * spread(config, target)
    return replace(held, state=replace(state, explore_at=now + wait)).uniform(step[0], Reason.PROBE)


def _explained(
    wish: Wish,
    options: Sequence[Candidate],
    current: int,
    taus: AcceptModel,
    costs: CostModel,
    load: Load,
) -> Wish:
    best = fastest(options, current)
    here = _at(options, current)
    chosen = next((c for c in options if c.budget == wish.budget), here)
    clamps = wish.explanation.clamps
    if load.batch + load.waiting > load.limit:
        clamps = (*clamps, Clamp.BATCH_LIMIT)
    known = wish.state.known
    if known is not None and best is options[-1] and max(known.tiers) > best.budget:
        clamps = (*clamps, Clamp.MAX_BUDGET)
    if known is not None and best is options[0] and min(known.tiers) < best.budget:
        clamps = (*clamps, Clamp.MIN_BUDGET)
    return replace(
        wish,
        explanation=replace(
            wish.explanation,
            batch_expected=chosen.batch,
            candidates=tuple(options),
            best_budget=best.budget,
            gain=1.0 - best.token_s / here.token_s,
            confidence=taus.confidence(chosen.budget),
            extrapolated=chosen.extrapolated,
            clamps=clamps,
            accept=AcceptCurve(taus.points([c.budget for c in options])),
            cost=costs.curve,
        ),
    )
