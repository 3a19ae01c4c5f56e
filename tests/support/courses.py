"""Courses of events for tests of `decide`: a policy in, the decisions of one server out.

Each puts a server through something: a load, a fault, a change of its curves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jetspec_controller.core import (
    Decision,
    Fault,
    Governor,
    LatencyPercentiles,
    PolicyConfig,
    Reason,
    Signal,
    SourceError,
)

from tests.support.world import World, affine, log_tau

Run = Callable[[PolicyConfig], list[Decision]]

SLOW = affine(0.02, 1e-5)
"""A device on which large trees pay."""

KV = {"kv_tokens": 20_000.0, "token_usage": 0.1}
"""The batch of 8 holds 250 tokens a request."""


def made(config: PolicyConfig, **changes: Any) -> World:
    return World(config=config, **changes)


def steady(config: PolicyConfig) -> list[Decision]:
    return made(config).steps(30, 4.0)


def from_uniform_blind(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    return [world.step(running_requests=None) for _ in range(20)]


def nearly_best(config: PolicyConfig) -> list[Decision]:
    """Another budget is faster, but by less than the tolerance."""
    world = made(config, cost=affine(0.01, 1e-4), tau=log_tau(0.6))
    return world.steps(30, 16.0)


def climbing(config: PolicyConfig) -> list[Decision]:
    """From the budget for many requests to that for one."""
    world = made(config, cost=affine(0.01, 1e-4))
    return world.steps(8, 1.0) + world.steps(12, 64.0) + world.steps(20, 1.0)


def probing(config: PolicyConfig) -> list[Decision]:
    world = made(config, budget=16, cost=SLOW)
    return world.steps(40)


def losing_probes(config: PolicyConfig) -> list[Decision]:
    world = made(
        config, budget=32, tau=lambda b: 1 + float(min(b, 32)) ** 0.5, cost=affine(0.02, 2e-5)
    )
    return world.steps(80)


def measured(config: PolicyConfig) -> list[Decision]:
    latency = LatencyPercentiles(0.95, tpot_s=0.012, ttft_s=0.2)
    world = made(config, cost=affine(0.02, 1e-4))
    return [world.step(batch=4.0, latency=latency) for _ in range(10)]


def filling(config: PolicyConfig) -> list[Decision]:
    """Requests come faster than they leave; the KV cache has room for few of them."""
    world = made(config, cost=SLOW, batch=8.0)
    world.steps(12)
    rising = {**KV, "arrival_rate": 8.0, "mean_output_tokens": 4000.0}
    return [world.step(batch=8.0, **rising) for _ in range(8)]


def bursty(config: PolicyConfig) -> list[Decision]:
    world = made(config, cost=SLOW, batch=8.0)
    world.steps(12)
    rates = [0.1] * 3 + [12.0] * 3 + [0.1] * 6
    known = {**KV, "mean_output_tokens": 4000.0}
    return [world.step(batch=8.0, arrival_rate=rate, **known) for rate in rates]


def full(config: PolicyConfig) -> list[Decision]:
    """The KV cache is full to 96 %."""
    world = made(config)
    world.steps(10, 4.0)
    return [world.step(batch=4.0, token_usage=0.96) for _ in range(4)]


def late(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    world.steps(5)
    return [world.decide(replace(world.observe(), observed_at=world.now - 12.0))]


def changing_tau(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    decisions = world.steps(20, 4.0)
    world.tau = log_tau(0.15)
    return decisions + world.steps(20, 4.0)


def changing_cost(config: PolicyConfig) -> list[Decision]:
    world = made(config, noise=0.1)
    decisions = world.steps(40, 4.0)
    world.cost = affine(0.01, 4e-4)
    return decisions + world.steps(40, 4.0)


def young(config: PolicyConfig) -> list[Decision]:
    return made(config, budget=64).steps(4, 4.0)


def better_drafts(config: PolicyConfig) -> list[Decision]:
    """Drafts are bad, so that budgets are cut, and then good."""
    world = made(config, cost=affine(0.01, 1e-4), tau=log_tau(0.3))
    decisions = world.steps(20, 4.0)
    world.tau = log_tau(3.0)
    return decisions + world.steps(10, 4.0)


def relieved(config: PolicyConfig) -> list[Decision]:
    """A KV cache that was too small for large trees has room again."""
    world = made(config, cost=affine(0.02, 1e-6), batch=8.0)
    world.steps(12)
    tight = {"kv_tokens": 4_000.0, "token_usage": 0.9}
    decisions = [world.step(**tight) for _ in range(4)]
    return decisions + world.steps(12)


def flapping(config: PolicyConfig) -> list[Decision]:
    world = made(config, cost=affine(0.01, 1e-4))
    world.steps(12)
    return [world.step(batch=n) for n in ([1.0] * 3 + [32.0]) * 12]


def drift(config: PolicyConfig) -> list[Decision]:
    """One overwrite, then several, of a server that then no longer obeys."""
    world = made(config)
    world.steps(10, 4.0)
    world.budget, world.table = 256, ()
    decisions = [world.step(overwrites=1)]
    world.obeys, world.budget, world.table = False, 256, ()
    decisions += world.steps(6)
    return decisions + [world.step(overwrites=2) for _ in range(2)]


def restarted(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    world.steps(10, 4.0)
    world.restart(256)
    only = made(config, tiers=(16,), budget=16)
    only.steps(5)
    only.restart(16)
    return world.steps(4) + only.steps(2)


def reset(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    world.steps(5)
    world.totals.clear()
    return [world.step()]


def frozen(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    world.steps(3)
    return [world.step(producer_timestamp=1.0) for _ in range(9)]


def unusable(config: PolicyConfig) -> list[Decision]:
    """Every fault of a source."""
    world = made(config)
    world.steps(3)
    lacking = SourceError(Signal.LATENCY, Fault.MISSING, "a_bucket")
    bounded = made(config.model_copy(update={"tpot_objective_s": 0.01}))
    broken: list[dict[str, Any]] = [
        {"running_requests": None},
        {"running_requests": float("nan")},
        {"budget": None},
    ]
    faults = (f for f in Fault if f not in (Fault.FROZEN, Fault.RESET, Fault.RESTARTED))
    broken += [{"errors": (SourceError(Signal.LOAD, fault),)} for fault in faults]
    return [world.step(**changes) for changes in broken] + [
        bounded.step(errors=(lacking,)),
        *late(config),
    ]


def unknown(config: PolicyConfig) -> list[Decision]:
    """Nothing read back yet; no round yet; no costs yet."""
    world, idle, blind = (
        made(config),
        made(config, budget=1),
        made(config, with_gauges=False),
    )
    idle.batch = 0.0
    return [world.step(budget=None), *idle.steps(3), blind.step(), blind.step(counters=None)]


def no_tier(config: PolicyConfig) -> list[Decision]:
    return steady(config.model_copy(update={"min_budget": 3, "max_budget": 5}))


def out_of_range(config: PolicyConfig) -> list[Decision]:
    return made(config.model_copy(update={"max_budget": 64}), cost=SLOW).steps(9)


def governed(config: PolicyConfig) -> list[Decision]:
    others = (
        {"governor": Governor.OFF},
        {"governor": Governor.PINNED, "pinned_budget": 16},
        {"governor": Governor.TABLE, "table": {1: 64}},
    )
    return [d for keys in others for d in steady(config.model_copy(update=keys))]


def bounded(config: PolicyConfig) -> list[Decision]:
    narrow = config.model_copy(update={"min_budget": 64})
    return measured(config.model_copy(update={"tpot_objective_s": 0.011})) + made(narrow).steps(
        9, 64.0
    )


def crowded(config: PolicyConfig) -> list[Decision]:
    world = made(config)
    world.steps(5, 4.0)
    return [world.step(batch=4.0, waiting_requests=9.0, max_running_requests=8.0)]


def unmeasured(config: PolicyConfig) -> list[Decision]:
    """A probe, and no rounds to judge it by."""
    world = made(config, budget=16, cost=SLOW)
    while (decision := world.step()).reason is not Reason.PROBE:
        pass
    return [decision, world.step(counters=None)]


def one_step(config: PolicyConfig) -> list[Decision]:
    slow = config.model_copy(update={"step_down": 1, "step_up": 1})
    return steady(slow) + relieved(slow)
