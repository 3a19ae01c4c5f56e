"""What is carried over of the load, and the batch a decision starts from."""

from __future__ import annotations

from dataclasses import replace

import pytest
from jetspec_controller.core import PolicyConfig, TargetState
from jetspec_controller.core.inputs import check
from jetspec_controller.core.learning import learn, load_now

from tests.support.world import World

CONFIG = PolicyConfig()


def load_of(observation, before: TargetState, now: float):
    inputs = check(CONFIG, observation, before, now)
    return load_now(observation, inputs, before, learn(CONFIG, observation, inputs, before, now))


def test_a_burst_between_two_scrapes_counts():
    world = World(config=CONFIG)
    world.steps(3)
    world.batch = 12.0
    world.run()
    seen = replace(world.observe(), running_requests=0.0)
    assert load_of(seen, world.state, world.now).batch == pytest.approx(12.0)


def test_a_queue_that_stays_shows_the_limit():
    world = World(config=CONFIG, batch=8.0)
    world.step(waiting_requests=40.0)
    world.run()
    staying = load_of(replace(world.observe(), waiting_requests=40.0), world.state, world.now)
    assert staying.limit == 8.0
    new = replace(world.state, waiting=0.0)
    assert load_of(replace(world.observe(), waiting_requests=40.0), new, world.now).limit > 8.0


def test_arrivals_are_smoothed_and_a_gap_keeps_them():
    world = World(config=CONFIG)
    world.step(arrival_rate=10.0, mean_output_tokens=100.0)
    world.step(arrival_rate=0.0, mean_output_tokens=None)
    keep = 0.5 ** (CONFIG.interval_s / CONFIG.load_half_life_s)
    assert world.state.arrival_rate == pytest.approx(10.0 * keep)
    assert world.state.output_tokens == 100.0


def test_an_unusable_load_is_not_carried_over():
    world = World(config=CONFIG, batch=5.0)
    world.steps(2)
    world.step(running_requests=None)
    assert world.state.batch == 5.0
    assert world.state.usable_at == world.now - CONFIG.interval_s
