"""The state after an observation, before a decision: curves, load, and what the server runs. No I/O."""

from __future__ import annotations

import math
from dataclasses import replace

from jetspec_controller.core import accept, cost
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.inputs import Inputs, number
from jetspec_controller.core.load import ServerLoad
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import TargetObservation


def learn(
    config: PolicyConfig,
    observation: TargetObservation,
    inputs: Inputs,
    state: TargetState,
    now: float,
) -> TargetState:
    """Adds one observation to what is remembered of its server."""
    known = observation.budget or state.known
    if inputs.restarted and observation.budget and state.known:
        old, new = state.known, observation.budget
        if (old.tiers, old.max_budget) != (new.tiers, new.max_budget):
            state = replace(state, accept=(), cost=(), budget=None, table=(), probe_budget=None)
    old_edges = state.counters.edges if state.counters else None
    if inputs.counters is not None and old_edges not in (None, inputs.counters.edges):
        state = replace(state, accept=())
    limit = accept.SEED_ROUNDS * config.min_request_rounds if inputs.first else float("inf")
    return replace(
        state,
        tick=state.tick + 1,
        last_at=now,
        usable_at=now if inputs.blocked is None or state.usable_at is None else state.usable_at,
        counters=inputs.counters,
        started_at=observation.started_at
        if observation.started_at is not None
        else state.started_at,
        restarted=state.restarted or inputs.restarted,
        producer_timestamp=observation.producer_timestamp
        if inputs.producer_moved_at is not None
        else state.producer_timestamp,
        producer_moved_at=inputs.producer_moved_at
        if inputs.producer_moved_at is not None
        else state.producer_moved_at,
        known=known,
        batch=observation.running_requests if inputs.blocked is None else state.batch,
        waiting=(observation.waiting_requests or 0.0) if inputs.blocked is None else state.waiting,
        arrival_rate=_smoothed(
            config, number(observation.arrival_rate), state.arrival_rate, state.last_at, now
        ),
        output_tokens=_smoothed(
            config, number(observation.mean_output_tokens), state.output_tokens, state.last_at, now
        ),
        request_tokens=_smoothed(
            config, _request_tokens(observation), state.request_tokens, state.last_at, now
        ),
        base=inputs.cost if inputs.restarted or state.base is None else state.base,
        accept=accept.remember(config, state.accept, inputs.fresh, now, limit),
        cost=cost.remember(config, state.cost, inputs.fresh, now, limit),
    )


def load_now(
    observation: TargetObservation, inputs: Inputs, before: TargetState, after: TargetState
) -> ServerLoad:
    """The load that the projection starts from; the observation's load must be usable.

    The batch is the larger one of two values: what runs now, and the mean over the rounds since the
    last scrape. The gauge is some rounds late and misses a burst between two scrapes. If a queue
    stays and the batch does not grow, the server is full.
    """
    running, waiting = observation.running_requests or 0.0, observation.waiting_requests or 0.0
    batch, rounds = running, sum(c.rounds for c in inputs.fresh)
    if rounds > 0 and not inputs.first:
        batch = max(batch, sum(c.request_rounds for c in inputs.fresh) / rounds)
    limit = number(observation.max_running_requests) or math.inf
    grew = before.batch is None or running > before.batch
    if waiting > 0 and before.waiting > 0 and not grew:
        limit = min(limit, max(batch, 1.0))
    return ServerLoad(
        batch,
        waiting,
        limit,
        after.arrival_rate if observation.arrival_rate is not None else None,
        after.output_tokens,
        slots=number(observation.max_running_requests) or math.inf,
        kv_tokens=number(observation.kv_tokens),
        request_tokens=after.request_tokens,
    )


def _request_tokens(observation: TargetObservation) -> float | None:
    """Tokens of the KV cache that one running request holds."""
    usage, size = number(observation.token_usage), number(observation.kv_tokens)
    running = number(observation.running_requests)
    if usage is None or not size or running is None or running < 1:
        return None
    return usage * size / running


def _smoothed(
    config: PolicyConfig, value: float | None, old: float | None, last_at: float | None, now: float
) -> float | None:
    """Exponential mean with half-life ``load_half_life_s``; a missing value keeps the old mean."""
    if value is None or old is None or last_at is None:
        return old if value is None else value
    keep = math.pow(0.5, max(now - last_at, 0.0) / config.load_half_life_s)
    return value + keep * (old - value)
