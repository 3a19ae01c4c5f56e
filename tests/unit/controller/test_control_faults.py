"""Faults of SGLang's admin API, of the controller's own life, and of its disk."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from jetspec_controller.actuators import Outcome
from jetspec_controller.core import Action, Reason
from jetspec_controller.settings import RESTART_ONLY, SettingsError
from jetspec_controller.state_file import StateUnavailableError

from tests.support.fake_sglang import CONTROL, INFO, FakeSGLang
from tests.support.rig import IMPATIENT, Rig

pytestmark = pytest.mark.anyio


def busy(rig: Rig) -> None:
    """A load that calls for a cut from 64 to 16."""
    rig.server.engine.running = 8


def outcome(rig: Rig) -> Outcome:
    return rig.service.loop.fleet[rig.name].last_apply.outcome


async def test_restarted_server_gets_its_budget_back(make) -> None:
    async with make() as rig:
        busy(rig)
        assert (await rig.ticks(4)).budget == 16
        await rig.server.restart()
        assert rig.server.engine.budget == 64
        reasons = [(await rig.ticks()).reason for _ in range(3)]
        assert Reason.RESTART_REAPPLY in reasons
        assert rig.server.engine.budget == 16
        assert [e["event"] for e in rig.events()].count("restarted") == 1


async def test_budget_changed_by_somebody_else_is_put_right(make) -> None:
    async with make() as rig:
        busy(rig)
        await rig.ticks(4)
        rig.server.engine.budget = 128
        decision = await rig.ticks()
        assert (decision.reason, rig.server.engine.budget) == (Reason.DRIFT_REAPPLY, 16)
        assert rig.metric("drift_total", target=rig.name) == 1


CONTROL_FAULTS = {401: Outcome.UNAUTHORISED, 403: Outcome.UNAUTHORISED, 500: Outcome.HTTP}


@pytest.mark.parametrize("status", CONTROL_FAULTS)
async def test_control_call_is_answered_with(make, status: int) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.faults.status[CONTROL] = status
        busy(rig)
        decision = await rig.ticks()
        assert (decision.reason, decision.budget) == (Reason.FASTER_DOWN, 16)
        assert outcome(rig) is CONTROL_FAULTS[status]
        assert rig.metric("applies_total", target=rig.name, result=outcome(rig)) == 1
        assert rig.server.engine.budget == 64
        assert rig.events()[-1]["event"] == "apply_failed"
        rig.server.faults.status.clear()
        await rig.ticks(3)
        assert rig.server.engine.budget == 16


async def test_refusal_in_a_200_is_seen(make) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.faults.refuse = True
        busy(rig)
        await rig.ticks()
        assert outcome(rig) is Outcome.REFUSED
        assert "told to refuse" in rig.service.loop.fleet[rig.name].last_apply.detail
        await rig.ticks(30)
        refusals = rig.metric("applies_total", target=rig.name, result="refused")
        assert refusals <= 16, "a refused budget is not asked for at every tick"
        assert rig.server.engine.budget == 64


async def test_accepted_but_not_in_force_is_seen(make) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.faults.ignore_control = True
        busy(rig)
        await rig.ticks()
        assert outcome(rig) is Outcome.NOT_IN_FORCE
        reasons = {(await rig.ticks()).reason for _ in range(12)}
        assert Reason.NOT_APPLIED in reasons


@pytest.mark.parametrize("body", ["{}", "[]", "[1]", "<html>", '{"detail": "ok"}'])
async def test_answer_that_is_not_a_list_of_bools(make, body: str) -> None:
    async with make() as rig:
        await rig.ticks(4)
        rig.server.faults.body[CONTROL] = body
        busy(rig)
        await rig.ticks()
        assert outcome(rig) is Outcome.PARSE


async def test_hung_control_opens_the_breaker_and_delays_nobody(make) -> None:
    async with make(servers=2, settings=IMPATIENT) as rig:
        await rig.ticks(4)
        rig.server.faults.hang = {CONTROL, INFO}
        other = rig.servers[1]
        busy(rig)
        other.engine.running = 8
        started = time.monotonic()
        await rig.ticks(6)
        assert time.monotonic() - started < 20
        assert other.engine.budget == 16, "the healthy server followed its load"
        assert rig.metric("breaker_state", target=rig.name) == 2
        hung = rig.server.open[CONTROL] + rig.server.open[INFO]
        assert hung <= 3, "no more calls pile up in the server than it takes to open the breaker"
        calls = rig.server.calls[INFO]
        await rig.ticks(3)
        assert rig.server.calls[INFO] == calls, "no call while the breaker is open"
        rig.server.faults.hang = set()
        rig.service.loop.actuator._monotonic = lambda: time.monotonic() + 60
        await rig.ticks(3)
        assert rig.metric("breaker_state", target=rig.name) == 0
        assert rig.server.engine.budget == 16


async def test_server_that_takes_long_to_start_is_taken_up_at_once(make) -> None:
    async with make() as rig:
        busy(rig)
        await rig.server.stop()
        assert (await rig.ticks(30)).reason is Reason.SERVER_DOWN
        assert rig.metric("breaker_state", target=rig.name) == 0
        await rig.server.restart()
        await rig.ticks(2)
        assert rig.server.engine.budget == 16


async def test_one_control_call_at_a_time_per_server(make) -> None:
    async with make() as rig:
        rig.server.faults.slow = {INFO: 0.05, CONTROL: 0.05}
        actuator = rig.service.loop.actuator
        target = rig.service.loop.discovery._places[0]._targets[0]
        results = await asyncio.gather(
            *(actuator.read(target) for _ in range(5)), return_exceptions=True
        )
        assert sum(isinstance(result, Exception) for result in results) == 4
        assert rig.server.most_open[INFO] == 1


async def test_keys_go_where_sglang_wants_them(tmp_path: Path, monkeypatch, make) -> None:
    monkeypatch.setenv("ADMIN", "the-admin-key")
    key_file = tmp_path / "key"
    key_file.write_text("the-api-key\n")
    keys = {"api_key": {"file": str(key_file)}, "admin_key": {"env": "ADMIN"}}
    async with (
        FakeSGLang(api_key="the-api-key", admin_api_key="the-admin-key") as server,
        make(adopt=[server], settings={"control": keys}) as rig,
    ):
        server.clock = rig.clock
        busy(rig)
        await rig.ticks(4)
        assert server.engine.budget == 16
        key_file.write_text("rotated")
        assert (await rig.ticks()).reason is Reason.SOURCE_UNAUTHORISED


async def test_killed_in_the_middle_of_an_apply(make) -> None:
    """The call may have taken effect or not; the next controller finds out and decides anew."""
    async with make(settings=IMPATIENT) as rig:
        await rig.ticks(4)
        busy(rig)
        rig.server.faults.hang = {CONTROL}
        rig.clock.now += 2.0
        ticking = asyncio.create_task(rig.service.loop.tick())
        async with asyncio.timeout(5):
            while not rig.server.open[CONTROL]:
                await asyncio.sleep(0.01)
        ticking.cancel()
        rig.server.faults.hang = set()
        rig.server.engine.set_budget({"jetspec_tree_budget": 32})
        async with make(adopt=rig.servers, clock=rig.clock) as successor:
            decision = await successor.ticks(4)
            assert (decision.budget, rig.server.engine.budget) == (16, 16)


async def test_two_controllers_agree_and_do_not_fight(make, tmp_path: Path) -> None:
    async with make() as first, make(adopt=first.servers, clock=first.clock) as second:
        busy(first)
        for _ in range(10):
            await first.ticks()
            await second.service.loop.tick()
        settled = len(first.server.applied)
        for _ in range(20):
            await first.ticks()
            await second.service.loop.tick()
        assert first.server.engine.budget == 16
        assert len(first.server.applied) - settled <= 2


async def test_an_error_of_ours_about_one_server_leaves_the_others_alone(make, monkeypatch) -> None:
    from jetspec_controller import loop

    async with make(servers=2) as rig:
        await rig.ticks(4)
        other = rig.servers[1]
        other.engine.running = 8
        real = loop.decide

        def broken(policy, observation, state, now):
            if observation.target == rig.name:
                raise ZeroDivisionError
            return real(policy, observation, state, now)

        monkeypatch.setattr(loop, "decide", broken)
        await rig.ticks(2)
        assert other.engine.budget == 16
        assert rig.metric("decision_errors_total", target=rig.name) == 2


async def test_broken_config_on_reload_keeps_the_old_one(make, tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    config.write_text("policy: {max_budget: 32}\n")
    async with make() as rig:
        rig.service._config_path = config
        await rig.service.reload("test")
        before = rig.service.settings.digest
        await rig.ticks(2)
        assert rig.server.engine.budget <= 32
        for broken in ("policy: {max_budget: 0}\n", "policy: [\n", "nonsense: 1\n", "- a\n"):
            config.write_text(broken)
            with pytest.raises(SettingsError):
                await rig.service.reload("test")
            assert rig.service.settings.digest == before
            assert rig.metric("config_last_reload_success") == 0
            assert rig.metric("config_hash", hash=before) == 1
            assert rig.events()[-1]["event"] == "config_refused"
            assert (await rig.ticks()).action in Action
        config.write_text("policy: {max_budget: 16}\n")
        await rig.service.reload("test")
        await rig.ticks(2)
        assert rig.server.engine.budget == 16
        assert rig.metric("config_last_reload_success") == 1


async def test_every_reload_names_what_waits_for_a_restart(make, tmp_path: Path) -> None:
    config = tmp_path / "controller.yaml"
    changed = {
        "api.host": "api: {host: 127.0.0.2}",
        "api.port": "api: {port: 40000}",
        "api.history": "api: {history: 7}",
        "state": f"state: {{path: {tmp_path}/other.sqlite}}",
        "audit": "audit: {backups: 9}",
        "record": f"record: {tmp_path}/record.jsonl",
    }
    assert set(changed) == set(RESTART_ONLY)
    async with make() as rig:
        service = rig.service
        service._config_path = config
        service._flags = {"targets": [rig.server.url], "api": {"insecure": True}}
        config.write_text("")
        at_start = await service.reload("test")
        assert "api.port" not in at_start
        started = service.settings
        for key, text in changed.items():
            config.write_text(f"{text}\npolicy: {{max_budget: 32}}\n")
            for _ in range(2):
                waiting = await service.reload("test")
                assert key in waiting
                assert service.restart_needed == waiting
                assert rig.metric("config_restart_needed") == len(waiting)
                assert rig.events()[-1]["restart_needed"] == list(waiting)
            now = service.settings
            assert now.policy.max_budget == 32, "the rest is in force"
            whole = now.model_copy(update={"policy": started.policy})
            assert whole.digest == started.digest, "the hash is that of what is in force"
            assert rig.metric("config_hash", hash=now.digest) == 1
        config.write_text("")
        assert await service.reload("test") == at_start
        assert service.settings.digest == started.digest


async def test_disk_full_for_the_state(make) -> None:
    async with make() as rig:
        await rig.ticks(2)
        database = rig.service.state._connection
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count={pages}")
        managed = rig.service.loop.fleet[rig.name]
        with pytest.raises(StateUnavailableError, match="full"):
            rig.service.pin(managed, 16, 60.0, "x" * 100_000, "test")
        assert not rig.service.state.pins
        assert rig.metric("state_errors_total") == 1
        busy(rig)
        await rig.ticks(2)
        assert rig.server.engine.budget == 16, "control goes on"


async def test_disk_full_for_the_audit_log(make) -> None:
    async with make(settings={"audit": {"path": "/dev/full"}}) as rig:
        busy(rig)
        await rig.ticks(3)
        assert rig.server.engine.budget == 16, "control goes on"
        assert rig.metric("audit_errors_total") > 0


async def ticks_until_the_first_apply(rig: Rig) -> None:
    for _ in range(10):
        await rig.ticks()
        if rig.server.applied:
            return
    pytest.fail("nothing was applied")


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize(("on_shutdown", "left"), [("hold", 16), ("restore", 64)])
async def test_budget_left_behind(make, on_shutdown: str, left: int, later: int) -> None:
    """However soon after an apply the controller ends."""
    async with make(settings={"on_shutdown": on_shutdown}) as rig:
        busy(rig)
        await ticks_until_the_first_apply(rig)
        await rig.ticks(later)
        assert rig.server.engine.budget == 16
    assert rig.server.engine.budget == left


async def test_restored_although_the_last_call_was_cut_off(make) -> None:
    async with make(settings={**IMPATIENT, "on_shutdown": "restore"}) as rig:
        busy(rig)
        await ticks_until_the_first_apply(rig)
        await rig.ticks(2)
        rig.server.faults.hang.add(CONTROL)
        rig.server.engine.running = 1
        rig.service.loop.patience_s = 0.0
        for _ in range(50):
            await rig.ticks()
            await asyncio.sleep(0.02)
            if rig.server.open[CONTROL]:
                break
        assert rig.server.open[CONTROL] == 1, "a control call under way"
        rig.server.faults.hang.clear()
    assert rig.server.engine.budget == 64


@pytest.mark.parametrize("governor", ["off", "advisory"])
async def test_a_server_that_is_only_watched_is_not_restored(make, governor: str) -> None:
    settings = {"on_shutdown": "restore", "policy": {"governor": governor}}
    async with make(settings=settings) as rig:
        await rig.ticks(2)
        rig.server.engine.budget = 32
        await rig.ticks(2)
    assert rig.server.engine.budget == 32


async def test_launch_budget_survives_a_restart_of_the_controller(make) -> None:
    async with make() as rig:
        busy(rig)
        await rig.ticks(4)
        restoring = {"on_shutdown": "restore"}
        async with make(adopt=rig.servers, clock=rig.clock, settings=restoring) as successor:
            await successor.ticks(2)
        assert rig.server.engine.budget == 64


async def test_published_table_is_sent_and_read_back(make) -> None:
    table = {"governor": "table", "publish_table": True, "table": {1: 64, 8: 16}}
    async with make(settings={"policy": table}) as rig:
        await rig.ticks(3)
        assert rig.server.engine.table == {1: 64, 8: 16}
        assert outcome(rig) is Outcome.APPLIED
        calls = len(rig.server.applied)
        busy(rig)
        await rig.ticks(5)
        assert len(rig.server.applied) == calls, "the engine follows the batch by itself"
        assert rig.server.engine.budget_at(8) == 16
