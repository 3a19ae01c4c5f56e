"""`decide` on any curves, any load and any input: bounds, order, calm, speed of reaction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jetspec_controller.core import PolicyConfig, Reason, TargetState, decide
from jetspec_controller.core.decision import PROBES

from tests.support.world import World

from .strategies import batches, observations, request_costs, row_costs, taus, tiers

UNIFORM = PolicyConfig(publish_table=False)
TABLE = PolicyConfig(publish_table=True)
modes = pytest.mark.parametrize("config", [UNIFORM, TABLE], ids=["uniform", "table"])

EXAMPLES = settings.default.max_examples
"""Of the profile: 100, or 300 in `make test-full`. A simulated minute is worth many of them."""
QUICK = settings(max_examples=EXAMPLES // 20, deadline=None, derandomize=True)


def used(decision) -> set[int]:
    """Every budget that a decision can put in force."""
    return {b for _, b in decision.table} or {decision.budget}


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(st.data())
def test_any_input_gives_a_decision_within_bounds(data):
    low, high = data.draw(st.sampled_from([(1, 4096), (16, 64), (32, 32)]))
    config = PolicyConfig(
        min_budget=low,
        max_budget=high,
        publish_table=data.draw(st.booleans()),
        tpot_objective_s=data.draw(st.sampled_from([None, 0.01])),
        ttft_objective_s=data.draw(st.sampled_from([None, 0.1])),
    )
    state, now = TargetState(), 100.0
    for _ in range(data.draw(st.integers(1, 6))):
        now += data.draw(st.sampled_from([0.0, 2.0, 30.0]))
        observation = data.draw(observations(now))
        decision, state = decide(config, observation, state, now)
        if decision.applies:
            known = state.known
            assert known is not None
            for budget in used(decision):
                assert budget in known.tiers
                assert low <= budget <= min(high, known.max_budget)


@modes
@QUICK
@given(
    taus(), request_costs(), tiers, st.lists(batches, min_size=1, max_size=15), st.integers(0, 9)
)
def test_same_observations_give_the_same_decisions(config, tau, cost, tiers, loads, seed):
    def replay():
        world = World(tau, cost, tiers, config, budget=tiers[-1], noise=0.1, seed=seed)
        return [world.step(float(n)) for n in loads], world.state

    assert replay() == replay()


@modes
@QUICK
@given(taus(), row_costs(), tiers)
def test_budget_falls_with_load(config, tau, cost, tiers):
    """From one state, a larger batch never gets a larger best budget."""
    world = World(tau, cost, tiers, config, budget=tiers[-1])
    world.steps(10)
    world.state = replace(world.state, probe_budget=None)
    best = []
    for batch in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
        world.batch = float(batch)
        decision, state = decide(config, world.observe(), world.state, world.now)
        best.append(decision.explanation.best_budget)
        if state.probe_budget is None:
            budgets = [b for _, b in decision.table]
            assert budgets == sorted(budgets, reverse=True)
    assert best == sorted(best, reverse=True)


@modes
@QUICK
@given(taus(), request_costs(), tiers, batches)
def test_constant_load_comes_to_rest(config, tau, cost, tiers, batch):
    """After a minute the budget in force stays but for probes, which get ever rarer. Entries of
    a table for other batches may still shift a little as measurements age.
    """
    world = World(tau, cost, tiers, config, batch=float(batch), budget=tiers[-1])
    world.steps(30)
    rest, moves, trials = world.in_force, [], 0
    for decision in (world.step() for _ in range(100)):
        trials += decision.reason is Reason.PROBE
        if decision.applies and decision.reason not in PROBES:
            moves.append((decision.tick, decision.reason, decision.budget, decision.table))
            assert world.in_force == rest
    assert len(moves) <= (3 if config.publish_table else 0), moves
    assert trials <= 5


@modes
@QUICK
@given(taus(), request_costs(), tiers, batches, st.integers(0, 9))
def test_noise_on_a_constant_load_does_not_flip_the_budget(config, tau, cost, tiers, batch, seed):
    world = World(
        tau, cost, tiers, config, batch=float(batch), budget=tiers[-1], noise=0.03, seed=seed
    )
    world.steps(30)
    decisions = world.steps(80)
    moves = [d for d in decisions if d.applies and d.reason not in PROBES]
    assert len(moves) <= 6, [(d.tick, d.reason, d.budget, d.table) for d in moves]


@QUICK
@given(taus(), row_costs(), tiers, batches, batches)
def test_uniform_budget_follows_a_step_within_four_ticks(tau, cost, tiers, before, after):
    """Cuts at the next tick; rises after confirmation, two tiers a tick."""
    world = World(tau, cost, tiers, UNIFORM, batch=float(before), budget=tiers[-1])
    world.steps(20)
    world.batch = float(after)
    ticks = 1 if world.best() < world.in_force else UNIFORM.rise_after_ticks + len(tiers) // 2 - 1
    world.steps(ticks, float(after))
    assert world.regret() <= UNIFORM.tolerance_up / (1 - UNIFORM.tolerance_up) + 0.02


@QUICK
@given(taus(), row_costs(), tiers, batches, batches)
def test_table_needs_no_tick_for_a_step(tau, cost, tiers, before, after):
    """The engine follows its own batch; rows within the grid's half octave of the batch."""
    world = World(tau, cost, tiers, TABLE, batch=float(before), budget=tiers[-1])
    world.steps(20)
    assume(before >= 1)
    world.batch = float(min(after, 64))
    assert world.regret() <= 0.2


@modes
@settings(max_examples=EXAMPLES // 25, deadline=None, derandomize=True)
@given(taus(), request_costs(), tiers, st.integers(0, 99))
def test_regret_is_bounded_under_noise(config, tau, cost, tiers, seed):
    """A load that wanders by a fifth a tick, 5 % noise: within 5 % of the best on average, learning
    included; the first ticks, before any curve, left out.
    """
    rng = np.random.default_rng(seed)
    world = World(tau, cost, tiers, config, budget=tiers[-1], noise=0.05, seed=seed)
    load, lost = 4.0, []
    for _ in range(150):
        load = float(np.clip(load * np.exp(rng.normal(0, 0.2)), 1, 64))
        world.step(round(load))
        lost.append(world.regret())
    assert np.mean(lost[5:]) <= 0.05
