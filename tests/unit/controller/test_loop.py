"""The loop keeps its pace, survives a failed tick, and is bounded by servers that hang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.support.rig import Rig

pytestmark = pytest.mark.anyio


async def run_until(rig: Rig, done: Callable[[], bool]) -> None:
    """Run the loop until `done`; pytest limits the wait."""
    running = asyncio.create_task(rig.service.loop.run())
    while not done():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_failed_tick_is_followed_by_the_next(make, monkeypatch, caplog) -> None:
    async with make(settings={"policy": {"interval_s": 0.02}}) as rig:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            ticks += 1
            raise RuntimeError("this tick fails")

        monkeypatch.setattr(rig.service.loop, "tick", tick)
        await run_until(rig, lambda: ticks >= 5)
        assert "this tick fails" in caplog.text


async def test_ticks_that_take_too_long_show_as_lag(make, monkeypatch) -> None:
    async with make(settings={"policy": {"interval_s": 0.05}}) as rig:

        async def tick() -> None:
            await asyncio.sleep(0.15)

        monkeypatch.setattr(rig.service.loop, "tick", tick)
        await run_until(rig, lambda: rig.metric("loop_lag_seconds") >= 0.09)


async def test_servers_that_hang_do_not_starve_the_others(make) -> None:
    """Two slots, six servers of which five hang: the other is still seen every few ticks."""
    patient = {"scrape": {"timeout_s": 0.2, "concurrency": 2}, "control": {"timeout_s": 0.2}}
    async with make(servers=6, settings=patient) as rig:
        for server in rig.servers[1:]:
            server.faults.hang = {"/metrics", "/v1/loads"}
        seen = 0
        for _ in range(6):
            started = time.monotonic()
            await rig.ticks()
            assert time.monotonic() - started < 5.0
            seen += rig.service.loop.fleet[rig.name].ready
        assert seen >= 2


async def test_metrics_down_but_loads_there(make) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.faults.status["/metrics"] = 500
        rig.server.engine.running = 8
        decision = await rig.ticks()
        assert decision.budget == 16, "the load is enough while the curves are remembered"
        assert {fault.signal for fault in decision.explanation.faults} >= {"rounds", "cost"}


@pytest.mark.parametrize("name", ["decision_errors_total", "drift_total"])
async def test_faults_are_counted_from_zero_on(make, name) -> None:
    """A counter that appears with its first fault shows no increase then, so no alert."""
    async with make() as rig:
        await rig.ticks()
        assert rig.metric(name, target=rig.name) == 0
