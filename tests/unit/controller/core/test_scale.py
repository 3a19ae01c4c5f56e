"""Many servers and many ticks: fast, and no growth."""

from __future__ import annotations

import gc
import pickle
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from jetspec_controller.core import CostMemory, PolicyConfig, decide
from jetspec_controller.core.cost import MOST_CELLS

from tests.support.world import World, affine

CONFIGS = [PolicyConfig(publish_table=False), PolicyConfig(publish_table=True)]
modes = pytest.mark.parametrize("config", CONFIGS, ids=["uniform", "table"])


def wandering(world: World, ticks: int, seed: int = 0):
    """A load that visits every batch up to 256, so that the memories are full."""
    rng = np.random.default_rng(seed)
    load = 8.0
    for _ in range(ticks):
        load = float(np.clip(load * np.exp(rng.normal(0, 0.5)), 1, 256))
        world.step(float(round(load)))


@modes
def test_200_servers_are_decided_in_well_under_a_second(config):
    world = World(config=config, cost=affine(request_s=1e-3), noise=0.05)
    wandering(world, 100)
    cells = tuple(
        CostMemory(budget, float(2.0 ** (k / 2)), 0.02, 100.0, world.now)
        for budget in (1, 16, 32, 64, 128, 256)
        for k in range(16)
    )
    assert len(cells) == MOST_CELLS
    full = replace(world.state, cost=cells)
    world.run()
    observation = world.observe()
    start = time.process_time()
    for _ in range(200):
        decide(config, observation, full, world.now)
    assert time.process_time() - start < 0.8


@modes
def test_state_stops_growing(config):
    world = World(config=config, cost=affine(request_s=1e-3), noise=0.05)
    wandering(world, 600)
    before = len(pickle.dumps(world.state))
    wandering(world, 600, seed=1)
    assert len(pickle.dumps(world.state)) <= 1.2 * before


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def growth(config: PolicyConfig) -> tuple[int, int]:
    """Objects and resident bytes that 90,000 ticks add to the first 10,000."""
    world = World(config=config, cost=affine(request_s=1e-3), noise=0.05)
    wandering(world, 10_000)
    gc.collect()
    before, objects = resident_bytes(), len(gc.get_objects())
    wandering(world, 90_000, seed=1)
    gc.collect()
    return len(gc.get_objects()) - objects, resident_bytes() - before


@pytest.mark.full
@pytest.mark.timeout(3000)
@modes
def test_memory_is_steady_over_100_000_ticks(config):
    # In a process of its own: what other tests left there would be counted.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        objects, resident = fresh.submit(growth, config).result()
    assert objects < 500
    assert resident < 4_000_000
