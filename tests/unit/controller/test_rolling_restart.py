"""A server that leaves and comes back under its name at another address, as a pod of a StatefulSet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.fake_sglang import FakeSGLang
from tests.support.rig import Rig

pytestmark = pytest.mark.anyio

NAME = "jetspec-engine-0"
LAUNCH, PINNED = 64, 32


class Pods:
    """The list of servers, as a file that discovery reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "targets.json"
        self.show(None)

    def show(self, server: FakeSGLang | None) -> None:
        found = [] if server is None else [server.url]
        self.path.write_text(json.dumps([{"targets": found, "labels": {"id": NAME}}]))


async def ticks(rig: Rig, count: int) -> None:
    for _ in range(count):
        rig.clock.now += 2.0
        await rig.service.loop.tick()


@pytest.fixture
async def pods(make, tmp_path: Path):
    """A rig, its list of servers, and the server before and after."""
    listed = Pods(tmp_path)
    settings = {"targets": [], "discovery": {"file": {"path": listed.path}}}
    engines = [FakeEngine(running=8), FakeEngine(running=8)]
    async with make(engines=engines, settings=settings) as rig:
        yield rig, listed, *rig.servers


async def replace(rig: Rig, listed: Pods, new: FakeSGLang) -> None:
    listed.show(None)
    await ticks(rig, 3)
    assert NAME not in rig.service.loop.fleet
    listed.show(new)


async def test_its_pin_is_in_force_again(pods) -> None:
    rig, listed, old, new = pods
    listed.show(old)
    await ticks(rig, 2)
    rig.service.pin(rig.service.managed(NAME), PINNED, 3600, "kept", "ops")
    await ticks(rig, 2)
    assert old.engine.budget == PINNED
    await replace(rig, listed, new)
    await ticks(rig, 2)
    assert new.engine.budget == PINNED


async def test_without_a_pin_it_starts_at_its_own_budget_and_is_steered_anew(pods) -> None:
    rig, listed, old, new = pods
    listed.show(old)
    await ticks(rig, 5)
    assert old.engine.budget == 16
    await replace(rig, listed, new)
    assert new.engine.budget == LAUNCH, "nothing was sent to it before it was listed"
    await ticks(rig, 5)
    assert new.engine.budget == 16
