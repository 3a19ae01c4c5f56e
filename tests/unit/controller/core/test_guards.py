"""Each guard matters: with it the behaviour holds, with it switched off the behaviour breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from jetspec_controller.core import (
    RANK_EDGES,
    Action,
    CostCurve,
    CostPoint,
    CostSource,
    PolicyConfig,
    Reason,
    accept,
    cost,
    decide,
    decision,
    governor,
    inputs,
    load,
    optimise,
    outlook,
    pace,
    probe,
    smoothing,
    table,
    uniform,
)

from tests.support.world import World, affine, log_tau

UNIFORM = PolicyConfig(publish_table=False, jitter=0.0)
GUARDS: list[tuple[str, Callable[[pytest.MonkeyPatch], None], Callable[[], bool]]] = []


def guard(off: Callable[[pytest.MonkeyPatch], None]):
    """Registers a behaviour with the way to switch its guard off."""

    def register(holds: Callable[[], bool]) -> Callable[[], bool]:
        GUARDS.append((holds.__name__, off, holds))
        return holds

    return register


def patch(module, name: str, value) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setattr(module, name, value)


def settled(batch: float = 1.0, **changes) -> World:
    world = World(config=UNIFORM.model_copy(update=changes), batch=batch)
    world.steps(12)
    return world


@guard(patch(inputs, "_load_fault", lambda observation: None))
def a_missing_load_is_not_an_idle_server() -> bool:
    world = settled(32.0)
    low = world.budget
    for _ in range(8):
        world.step(running_requests=None, waiting_requests=None, counters=None)
    return world.budget == low


@guard(patch(governor, "_blocked", lambda config, reason, allowed, held, now: held))
def blindness_ends_in_the_fallback() -> bool:
    world = settled()
    for _ in range(15):
        world.step(running_requests=None)
    return world.budget == 16


@guard(patch(inputs, "_producer_moved_at", lambda observation, state, now: now))
def a_hung_scheduler_is_noticed() -> bool:
    world = settled()
    return [world.step(producer_timestamp=1.0) for _ in range(9)][
        -1
    ].reason is Reason.PRODUCER_FROZEN


def _unchecked_difference(new, old):
    before = {c.budget: c for c in old.by_budget}
    return tuple(
        replace(c, seconds=c.seconds - before[c.budget].seconds) if c.budget in before else c
        for c in new.by_budget
    )


@guard(patch(inputs, "_difference", _unchecked_difference))
def a_counter_reset_is_noticed() -> bool:
    world = settled()
    world.totals.clear()
    world.run()
    return world.decide().reason is Reason.COUNTER_RESET


@guard(patch(decision, "_runs", lambda read, desired: True))
def a_restarted_server_gets_its_budget_back() -> bool:
    world = settled()
    wanted = world.budget
    world.restart(256)
    world.step()
    return wanted != 256 and world.budget == wanted


@guard(patch(decision, "RESEND_GROWTH", 0.0))
def a_server_that_does_not_obey_is_asked_ever_less_often() -> bool:
    world = settled()
    world.obeys, world.budget = False, 256
    sent = [d.tick for d in world.steps(8) if d.action is not Action.HOLD]
    return len(sent) <= 3


@guard(patch(governor, "allowed_budgets", lambda config, known: known.tiers))
def the_configured_range_is_kept() -> bool:
    world = settled(max_budget=32)
    return world.budget <= 32


def _flips(world: World) -> int:
    """Moves while the load jumps between 1 and 32 every tick."""
    decisions = [world.step(batch=n) for n in (1.0, 32.0) * 15]
    return sum(d.applies for d in decisions)


@guard(lambda monkeypatch: monkeypatch.setitem(RISE, "rise_after_ticks", 1))
def a_rise_is_confirmed() -> bool:
    return _flips(settled(**RISE)) <= 2


RISE = {"rise_after_ticks": 2, "dwell_s": 0.0}


def _slow_flips() -> int:
    """Moves while the load jumps every three ticks, long enough to confirm a rise."""
    world = settled(dwell_s=12.0)
    loads = ([1.0] * 3 + [32.0]) * 12
    return sum(world.step(batch=n).applies for n in loads)


@guard(patch(uniform, "rise_at", lambda config, state, target: float("-inf")))
def a_rise_keeps_its_dwell() -> bool:
    return _slow_flips() <= 14


def _no_band(monkeypatch):
    monkeypatch.setitem(BAND, "tolerance_up", 0.0)
    monkeypatch.setitem(BAND, "tolerance_down", 0.0)


@guard(_no_band)
def noise_within_the_band_moves_nothing() -> bool:
    """At this load two budgets are almost equally fast."""
    moves = 0
    for seed in range(3):
        near = affine(0.01, 5.3e-5)
        world = World(
            config=UNIFORM.model_copy(update=BAND), batch=3.0, noise=0.2, seed=seed, cost=near
        )
        world.steps(20)
        moves += sum(d.applies for d in world.steps(100))
    return moves == 0


BAND = {"tolerance_up": 0.05, "tolerance_down": 0.02, "probe_gain": 0.9}


@guard(lambda monkeypatch: monkeypatch.setitem(STEP, "step_up", 64))
def a_rise_climbs_a_few_tiers_a_tick() -> bool:
    world = World(config=UNIFORM.model_copy(update=STEP), cost=affine(0.05, 2e-5), tau=log_tau(1.0))
    world.steps(20, 1.0)
    world.steps(10, 200.0)
    low = world.tiers.index(world.budget)
    rises = [d.budget for d in world.steps(6, 1.0) if d.reason is Reason.FASTER_UP]
    return bool(rises) and world.tiers.index(rises[0]) <= low + 2


STEP = {"step_up": 2}


def _fastest_of_all(options, current):
    return min(options, key=lambda c: (c.token_s, c.budget))


@guard(patch(uniform, "fastest", _fastest_of_all))
def unmeasured_budgets_are_only_probed() -> bool:
    world = World(config=UNIFORM, budget=16, cost=affine(0.02, 1e-5))
    decisions = world.steps(10)
    return all(d.reason is Reason.PROBE for d in decisions if d.applies)


@guard(patch(optimise, "_won", lambda speed, state: True))
def a_lost_probe_goes_back() -> bool:
    world = World(
        config=UNIFORM,
        budget=32,
        tau=lambda b: 1 + float(min(b, 32)) ** 0.5,
        cost=affine(0.02, 2e-5),
    )
    return any(d.reason is Reason.PROBE_BACK for d in world.steps(20))


@guard(patch(probe, "near", lambda state, batch: True))
def a_probe_ends_when_the_load_changes() -> bool:
    world = World(config=UNIFORM, budget=16, cost=affine(0.02, 1e-5, 0.0))
    while world.step().reason is not Reason.PROBE:
        pass
    world.totals.clear()  # nothing measured: the probe would go on
    decision = world.step(batch=150.0, counters=None)
    return decision.reason is not Reason.PROBING


@guard(patch(outlook, "number", lambda value: 0.0))
def a_full_kv_cache_forbids_a_rise() -> bool:
    world = settled(32.0)
    low = world.budget
    for _ in range(6):
        world.step(batch=1.0, token_usage=0.99)
    return world.budget == low


@guard(patch(load, "STEPS", 1))
def the_batch_is_followed_through_the_interval() -> bool:
    """One step would hold the residence time of the start for the whole interval."""
    fast = load.ServerLoad(1.0, 0.0, float("inf"), 5.0, 100.0)
    expected = load.expected_batch(fast, 20.0, lambda n: 0.002 + 0.0005 * n, 1)[0]
    return bool(expected > 1.2)


def _as_measured(x, y, weights):
    return y


@guard(patch(accept, "concave", _as_measured))
def noise_in_the_accept_counts_is_smoothed() -> bool:
    rng = np.random.default_rng(3)
    exact = np.diff([0.0, *(60.0 * np.log2(RANK_EDGES))])
    counts = tuple(np.cumsum(rng.poisson(exact)).astype(float).tolist())
    memory = accept.remember(UNIFORM, (), [accept.BudgetCounters(256, 60, 60, 0, 0, counts)], 0.0)
    fitted = accept.model(UNIFORM, memory, RANK_EDGES, 0.0)
    slopes = np.diff(fitted.tau) / np.diff(fitted.edges)
    return bool(np.all(np.diff(slopes) <= 1e-9))


def _raw(rows, seconds, weights):
    return np.log(rows), np.log(seconds)


@guard(patch(cost, "loglog_convex", _raw))
def a_bumpy_cost_curve_does_not_raise_the_budget_with_load() -> bool:
    bumps = CostCurve(
        tuple(
            CostPoint(2.0**k, affine()(1, 2.0**k) * (1.6 if k % 3 == 0 else 1.0)) for k in range(15)
        ),
        CostSource.GAUGES,
    )
    world = settled()
    best = []
    for batch in range(1, 120, 3):
        world.batch = float(batch)
        state = replace(world.state, cost=(), base=None)
        seen = replace(world.observe(), cost=bumps)
        decided, _ = decide(UNIFORM, seen, state, world.now)
        best.append(decided.explanation.best_budget)
    return best == sorted(best, reverse=True)


@guard(patch(smoothing, "isotonic", lambda values, weights: values))
def slopes_are_pooled() -> bool:
    x = np.array([1.0, 2.0, 4.0, 8.0])
    smooth = smoothing.concave(x, np.array([1.0, 1.1, 2.0, 2.1]), np.ones(4))
    return bool(np.all(np.diff(np.diff(smooth) / np.diff(x)) <= 1e-9))


class _Rising:
    """A speed model that is sure of a small budget for few requests and a large one for many."""

    budgets = np.array([16.0, 64.0])
    tau = np.array([2.0, 4.0])
    measured = 64.0

    def round_s(self, batch):
        return np.where(batch < 4, np.array([1.0, 4.0]), np.array([4.0, 1.0]))


@guard(patch(table, "_falling", lambda chosen, pivot: chosen))
def table_entries_fall_with_the_batch() -> bool:
    free = table.Limits(None, kv_full=False, settling=False)
    entries = table.compute(UNIFORM, _Rising(), 8.0, 16.0, ((1, 16),), None, 16, free)
    budgets = [budget for _, budget in entries.table]
    return budgets == sorted(budgets, reverse=True)


@guard(lambda monkeypatch: monkeypatch.setitem(SPREAD, "jitter", 0.0))
def servers_do_not_wait_alike() -> bool:
    config = UNIFORM.model_copy(update=SPREAD)
    return len({pace.spread(config, f"server-{i}") for i in range(20)}) == 20


SPREAD = {"jitter": 0.1}


@pytest.mark.parametrize(("off", "holds"), [g[1:] for g in GUARDS], ids=[g[0] for g in GUARDS])
def test_guard_matters(off, holds, monkeypatch):
    assert holds(), "the behaviour is missing with its guard on"
    off(monkeypatch)
    assert not holds(), "the behaviour does not depend on the guard"
