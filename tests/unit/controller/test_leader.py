"""Leader election on a fake Kubernetes API: one leader, fenced by its own clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import kubernetes.aio.client  # noqa: F401 - large: not within a test's time limit
import pytest
from jetspec_controller.kube import KubernetesUnavailableError
from jetspec_controller.leader import LeaseLeader, SoleLeader
from jetspec_controller.settings import LeaderSettings

from tests.support.fake_kubernetes import FakeKubernetes

pytestmark = pytest.mark.anyio


class Monotonic:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def api() -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes() as fake:
        yield fake


def settings(api: FakeKubernetes, folder: Path, identity: str) -> LeaderSettings:
    return LeaderSettings(
        enabled=True,
        namespace="serving",
        identity=identity,
        lease_s=3.0,
        retry_s=0.1,
        kubeconfig=api.kubeconfig(folder),
    )


@asynccontextmanager
async def running(leader: LeaseLeader) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(leader.run())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_one_of_two_leads_and_the_other_takes_over_at_once(api, tmp_path: Path) -> None:
    first = LeaseLeader(settings(api, tmp_path, "a"))
    second = LeaseLeader(settings(api, tmp_path, "b"))
    async with running(second):
        async with running(first):
            await until(lambda: first.leads or second.leads)
            await until(lambda: first.holder == second.holder is not None)
            for _ in range(10):
                assert first.leads != second.leads
                await asyncio.sleep(0.05)
            leads_first = first.leads
        if leads_first:
            await until(lambda: second.leads, seconds=1.5)
            transitions = api.leases["jetspec-controller"]["spec"]["leaseTransitions"]
            assert transitions == 1
        assert not first.leads


async def test_leader_that_cannot_renew_stops_leading_on_its_own_clock(api, tmp_path) -> None:
    clock = Monotonic()
    leader = LeaseLeader(settings(api, tmp_path, "a"), monotonic=clock)
    async with running(leader):
        await until(lambda: leader.leads)
        api.status = 500
        clock.now += 2.9
        await asyncio.sleep(0.3)
        assert leader.leads
        clock.now += 0.2
        assert not leader.leads
        api.status = 200
        await until(lambda: leader.leads)


async def test_hanging_api_does_not_prolong_the_lead(api, tmp_path) -> None:
    clock = Monotonic()
    leader = LeaseLeader(settings(api, tmp_path, "a"), monotonic=clock)
    async with running(leader):
        await until(lambda: leader.leads)
        api.hang = True
        await asyncio.sleep(0.3)
        clock.now += 3.1
        assert not leader.leads
        api.hang = False


async def test_dead_holders_lease_is_taken_only_after_its_duration(api, tmp_path) -> None:
    async with running(LeaseLeader(settings(api, tmp_path, "dead"))) as dead:
        await until(lambda: "jetspec-controller" in api.leases)
        api.hang = True
        dead.cancel()
        with suppress(asyncio.CancelledError):
            await dead
        api.hang = False
    api.leases["jetspec-controller"]["spec"]["holderIdentity"] = "dead"
    clock = Monotonic()
    heir = LeaseLeader(settings(api, tmp_path, "heir"), monotonic=clock)
    async with running(heir):
        await until(lambda: heir.holder == "dead")
        clock.now += 2.9
        await asyncio.sleep(0.3)
        assert not heir.leads
        clock.now += 0.3
        await until(lambda: heir.leads)


async def test_missing_configuration_is_said(tmp_path: Path) -> None:
    broken = LeaderSettings(enabled=True, namespace="x", kubeconfig=tmp_path / "none")
    with pytest.raises(KubernetesUnavailableError):
        await LeaseLeader(broken).run()
    with pytest.raises(KubernetesUnavailableError, match="namespace"):
        await LeaseLeader(LeaderSettings(enabled=True)).run()


async def test_sole_leader_always_leads() -> None:
    assert SoleLeader("me").leads
    assert SoleLeader("me").holder == "me"


async def test_follower_decides_and_applies_nothing(make) -> None:
    async with make() as rig:
        follower = LeaseLeader(LeaderSettings(enabled=True, identity="b"))
        follower.holder = "a"
        rig.service.leader = rig.service.loop.leader = follower
        rig.server.engine.running = 8
        decision = await rig.ticks(4)
        assert decision.explanation.best_budget == 16
        assert rig.server.calls["/set_internal_state"] == 0
        assert rig.metric("is_leader") == 0
        follower._leads_until = float("inf")
        await rig.ticks(2)
        assert rig.server.engine.budget == 16
        assert [e["event"] for e in rig.events() if e["event"] in ("leading", "following")] == [
            "following",
            "leading",
        ]
