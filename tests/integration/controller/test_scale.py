"""A tick of many servers costs each of them 5 ms of a core; memory stays where it is."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jetspec_controller.core import (
    BudgetCounters,
    CostCurve,
    CostPoint,
    CostSource,
    Decision,
    RoundCounters,
    TargetObservation,
)
from jetspec_controller.service import Service
from jetspec_controller.settings import load

from tests.support.fake_engine import RANK_BUCKETS, FakeEngine

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SECONDS_A_SERVER = 1 / 200


@pytest.fixture
def farm(servers: int) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_farm", str(servers)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    yield int(process.stdout.readline())
    process.terminate()
    process.wait()


def settings(folder: Path, **more: object):
    return load(
        None,
        {
            "api": {"insecure": True, "history": 300},
            "state": {"path": folder / "state.sqlite"},
            "audit": {"path": folder / "audit.jsonl"},
            **more,
        },
    )


@pytest.mark.parametrize("servers", [50, pytest.param(200, marks=pytest.mark.full)])
async def test_a_tick_of_many_servers(
    servers: int, farm: int, tmp_path: Path, record_property
) -> None:
    targets = [{"id": f"s{n}", "url": f"http://127.0.0.1:{farm}/s/{n}"} for n in range(servers)]
    service = Service(settings(tmp_path, targets=targets, scrape={"timeout_s": 10}))
    await service.start(run=False)
    try:
        for _ in range(3):
            await service.loop.tick()
            await asyncio.sleep(1.1)
        spent: list[float] = []
        for _ in range(5):
            before = time.process_time()
            await service.loop.tick()
            spent.append(time.process_time() - before)
            await asyncio.sleep(1.1)
        ready = sum(managed.ready for managed in service.loop.fleet.values())
    finally:
        await service.stop()
    record_property("cpu_seconds_per_tick", spent)
    print(f"CPU seconds a tick of {servers} servers: {[round(s, 3) for s in spent]}")
    assert ready == servers
    assert sorted(spent)[len(spent) // 2] < servers * SECONDS_A_SERVER


class Fixed:
    """One server's engine behind every interface of the loop, without HTTP."""

    def __init__(self, target) -> None:
        self.target = target
        self.engine = FakeEngine()
        self.time = 1e9
        costs = (CostPoint(float(1 << p), self.engine.cost(1 << p)) for p in range(14))
        self.curve = CostCurve(tuple(costs), CostSource.GAUGES)

    def clock(self) -> float:
        return self.time

    async def targets(self, now: float):
        return [self.target]

    async def observe(self, targets, now: float):
        engine, counters = self.engine, self.engine.counters
        by_budget = tuple(
            BudgetCounters(
                budget,
                counters.rounds[budget],
                counters.request_rounds[budget],
                counters.tokens[budget],
                counters.seconds[budget],
                tuple(counters.ranks[budget][edge] for edge in RANK_BUCKETS),
            )
            for budget in sorted(counters.rounds)
        )
        observation = TargetObservation(
            self.target.id,
            now,
            running_requests=float(engine.running),
            waiting_requests=0.0,
            producer_timestamp=now,
            counters=RoundCounters(by_budget) if by_budget else None,
            cost=self.curve,
        )
        return {self.target.id: observation}

    def forget(self, names) -> None:
        """Nothing is remembered."""

    async def read(self, target):
        from jetspec_controller.actuators.messages import budget_state

        return budget_state({"internal_states": [{"jetspec": self.engine.read_back()}]})

    async def apply(self, target, decision: Decision):
        from jetspec_controller.actuators import ApplyResult, Outcome
        from jetspec_controller.actuators.messages import changes

        self.engine.set_budget(changes(decision.budget, decision.table))
        return ApplyResult(Outcome.APPLIED)

    def breaker_level(self, name: str) -> int:
        return 0


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("warm_up", "ticks"), [(2_000, 8_000), (20_000, 100_000)])
async def test_memory_is_steady(tmp_path: Path, record_property, warm_up: int, ticks: int) -> None:
    """Load and budget keep changing, so every history, window and log is in use."""
    wanted = settings(
        tmp_path,
        targets=["http://127.0.0.1:9"],
        audit={"path": tmp_path / "audit.jsonl", "max_bytes": 1_000_000, "backups": 1},
    )
    service = Service(wanted)
    await service.start(run=False)
    loop = service.loop
    (target,) = await loop.discovery.targets(0.0)
    fixed = Fixed(target)
    loop.discovery = loop.source = loop.actuator = fixed
    loop.clock = fixed.clock
    process = psutil.Process()
    early = 0
    try:
        for tick in range(ticks):
            fixed.time += 2.0
            fixed.engine.running = 1 + int(16 * (1 + math.sin(tick / 50)))
            fixed.engine.advance(2.0)
            await loop.tick()
            if tick == warm_up:
                early = process.memory_info().rss
        late = process.memory_info().rss
    finally:
        loop.actuator = service._parts.actuator
        await service.stop()
    record_property("rss_mib", [early / 2**20, late / 2**20])
    print(f"RSS after {warm_up} ticks {early / 2**20:.1f} MiB, after {ticks} {late / 2**20:.1f}")
    assert len({entry.budget for entry in loop.fleet[target.id].history}) > 1
    assert late - early < 4 * 2**20
