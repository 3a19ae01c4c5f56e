"""The desired state by the model: the fastest budget, or the fastest table, under the rules.

No I/O. Without a curve it holds, or takes one small step to measure one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jetspec_controller.core import accept, cost, outlook, probe, table
from jetspec_controller.core.accept import AcceptModel
from jetspec_controller.core.budgets import at_most
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.cost import CostModel
from jetspec_controller.core.desired import Desired
from jetspec_controller.core.enums import Clamp, Fault, Reason, Signal
from jetspec_controller.core.inputs import Inputs, number
from jetspec_controller.core.load import ServerLoad
from jetspec_controller.core.model import SpeedModel, build, candidates
from jetspec_controller.core.pace import spread
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import (
    RANK_EDGES,
    AcceptCurve,
    Candidate,
    Table,
    TargetObservation,
)
from jetspec_controller.core.uniform import Choice, choose, fastest

CALM = (Reason.OPTIMAL, Reason.WITHIN_TOLERANCE)
"""Reasons that leave room for a probe."""

LITTLE_RANGE = (0.25, 4.0)
"""The largest factor between Little's law and the observed batch."""


def optimise(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    allowed: tuple[int, ...],
    in_force: Table,
    load: ServerLoad,
    held: Desired,
    now: float,
) -> Desired:
    """The desired state, from the table or uniform budget in force."""
    state = held.state
    if _blind(config, observation):
        return replace(held, reason=Reason.LATENCY_MISSING)
    edges = inputs.counters.edges if inputs.counters is not None else RANK_EDGES
    taus = accept.model(config, state.accept, edges, now)
    # Once rounds are measured one by one, averages over rows would only count them again.
    curve = state.base if state.cost else inputs.cost or state.base
    costs = cost.model(config, curve, state.cost, now)
    current = at_most(allowed, table.lookup(in_force, load.batch))
    if taus is None or costs is None:
        cut = outlook.cold(config, allowed, load, in_force, held)
        if cut is not None:
            return cut
    if taus is None or (allowed[0] == current == 1 and taus.measured <= 1 and not held.table):
        # Where the counts are missing, no rounds would measure anything.
        counted = not any(
            e.signal is Signal.ROUNDS and e.fault is Fault.MISSING for e in inputs.faults
        )
        up = allowed[1:2] if current == 1 and counted else ()
        return _explore(config, observation.target, up, Reason.NO_ACCEPT_CURVE, held, now)
    if costs is None:
        here = allowed.index(current)
        step = allowed[here - 1 : here] if here else allowed[1:2]
        return _explore(config, observation.target, step, Reason.NO_COST_CURVE, held, now)

    speed = build(allowed, taus, costs)
    state = replace(state, little=_little(config, speed, load, current, state))
    load, held = replace(load, scale=state.little), replace(held, state=state)
    ahead = outlook.ahead(config, load, speed, in_force)
    limits = outlook.limits(config, observation, speed, load, ahead, in_force, state, now)
    explanation = replace(held.explanation, batch_expected=ahead, kv_ceiling=limits.ceiling)
    held = replace(held, explanation=explanation)
    options = candidates(config, speed, load, observation.latency, current)
    if config.publish_table:
        desired = _table(
            config, observation, inputs, speed, in_force, current, options, load, limits, held, now
        )
    else:
        desired = _uniform(config, observation, inputs, speed, current, options, limits, held, now)
    return _explained(desired, options, current, taus, costs, load)


def _blind(config: PolicyConfig, observation: TargetObservation) -> bool:
    """Whether an objective is set and the histogram that it needs is not there."""
    latency = observation.latency
    tpot = latency.tpot_s if latency is not None else None
    ttft = latency.ttft_s if latency is not None else None
    wanted = (config.tpot_objective_s, tpot), (config.ttft_objective_s, ttft)
    missing = any(
        e.signal is Signal.LATENCY and e.fault is Fault.MISSING for e in observation.errors
    )
    return missing and any(bound is not None and seen is None for bound, seen in wanted)


def _little(
    config: PolicyConfig, speed: SpeedModel, load: ServerLoad, current: int, state: TargetState
) -> float:
    """The observed batch divided by that of Little's law, smoothed like the load; kept while
    idle."""
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
    limits: table.Limits,
    held: Desired,
    now: float,
) -> Desired:
    name, state = observation.target, held.state
    if limits.ceiling is not None and limits.ceiling < current:
        fitting = [c for c in options if c.budget <= limits.ceiling]
        state = replace(state, probe_budget=None, rise_ticks=0, rise_to=None)
        best = fastest(fitting, current)
        return held.chosen(Choice(best.budget, Reason.KV_PRESSURE, state, (Clamp.KV_PRESSURE,)))
    outside = [c for c in options if c.budget > (limits.ceiling or c.budget)]
    beyond = bool(outside) and fastest(options, current) in outside
    options = options[: len(options) - len(outside)]
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
    choice = choose(config, name, options, origin, limits.kv_full, state, now)
    if choice.budget == origin != current:
        choice = replace(choice, reason=Reason.PROBE_BACK)
    elif choice.reason in CALM and held.explanation.batch_now:
        trial = probe.propose(config, options, current, not limits.kv_full, choice.state, now)
        if trial is not None:
            batch = _at(options, current).batch
            state = probe.begin(config, trial, current, (), batch, choice.state, now)
            choice = replace(choice, budget=trial, reason=Reason.PROBE, state=state)
    if beyond or limits.kv_full:
        clamps = dict.fromkeys((*choice.clamps, Clamp.KV_PRESSURE))
        reason = Reason.KV_PRESSURE if choice.reason in CALM else choice.reason
        choice = replace(choice, reason=reason, clamps=tuple(clamps))
    return held.chosen(choice)


def _table(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    speed: SpeedModel,
    in_force: Table,
    current: int,
    options: Sequence[Candidate],
    load: ServerLoad,
    limits: table.Limits,
    held: Desired,
    now: float,
) -> Desired:
    name, state = observation.target, held.state
    batch = max(load.batch, 1.0)
    limit = table.largest(number(observation.max_running_requests))
    back = False
    if state.probe_budget is not None:
        won = None
        if probe.measured(state, inputs.fresh, speed.measured):
            won = _won(speed, state)
        elif not probe.expired(state, now) and not probe.left(state, batch):
            return held.tabled(in_force, batch, Reason.PROBING)
        if not won:
            in_force = state.probe_table or in_force
            back = True
        state = probe.end(config, name, won, state, now)
    next_table = table.compute(
        config, speed, batch, limit, in_force, observation.latency, current, limits
    )
    desired, reason = next_table.table, next_table.reason
    if back and desired == in_force:
        reason = Reason.PROBE_BACK
    elif reason in CALM and load.batch > 0:
        trial = probe.propose(config, options, current, not limits.kv_full, state, now)
        if trial is not None and trial <= (limits.ceiling or trial):
            state = probe.begin(config, trial, current, desired, batch, state, now)
            desired = table.with_entry(desired, batch, trial, limit)
            reason = Reason.PROBE
    explanation = replace(
        held.explanation,
        clamps=(*held.explanation.clamps, *next_table.clamps),
        next_change_at=outlook.settles(config, state) if limits.settling else None,
    )
    return replace(held, state=state, explanation=explanation).tabled(desired, batch, reason)


def _at(options: Sequence[Candidate], budget: int) -> Candidate:
    return next(c for c in options if c.budget == budget)


def _won(speed: SpeedModel, state: TargetState) -> bool:
    """Whether the probed budget is, at its batch, at least as fast as the budget before the
    probe."""
    token_s = dict(zip(speed.budgets, speed.token_s(np.array([state.probe_batch])), strict=True))
    tried, origin = token_s.get(state.probe_budget), token_s.get(state.probe_from)
    return tried is None or origin is None or bool(tried <= origin)


def _explore(
    config: PolicyConfig,
    target: str,
    step: Sequence[int],
    missing: Reason,
    held: Desired,
    now: float,
) -> Desired:
    """One step to ``step`` (empty: no step helps) to measure the missing curve, then a wait."""
    state = held.state
    if not step or (state.explore_at is not None and state.explore_at > now):
        at = state.explore_at if step else None
        explanation = replace(held.explanation, next_change_at=at)
        return replace(held, reason=missing, explanation=explanation)
    wait = config.probe_interval_s * spread(config, target)
    return replace(held, state=replace(state, explore_at=now + wait)).uniform(step[0], Reason.PROBE)


def _explained(
    desired: Desired,
    options: Sequence[Candidate],
    current: int,
    taus: AcceptModel,
    costs: CostModel,
    load: ServerLoad,
) -> Desired:
    best = fastest(options, current)
    here = _at(options, current)
    chosen = next((c for c in options if c.budget == desired.budget), here)
    clamps = desired.explanation.clamps
    if load.batch + load.waiting > load.limit:
        clamps = (*clamps, Clamp.BATCH_LIMIT)
    known = desired.state.known
    if known is not None and best is options[-1] and max(known.tiers) > best.budget:
        clamps = (*clamps, Clamp.MAX_BUDGET)
    if known is not None and best is options[0] and min(known.tiers) < best.budget:
        clamps = (*clamps, Clamp.MIN_BUDGET)
    return replace(
        desired,
        explanation=replace(
            desired.explanation,
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
