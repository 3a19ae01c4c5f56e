"""The console script as a process: its start, its signals, its end, and a kill in between."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.controller_process import TOKEN, controller
from tests.support.fake_engine import FakeEngine
from tests.support.fake_sglang import CONTROL, FakeSGLang

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


def write_config(folder: Path, server: FakeSGLang, **more: object) -> Path:
    path = folder / "controller.yaml"
    content = {
        "targets": [server.url],
        "policy": {"interval_s": 0.2, "dwell_s": 0, "publish_table": False},
        "control": {"timeout_s": 1.0},
        "state": {"path": str(folder / "state.sqlite")},
        "audit": {"path": str(folder / "audit.jsonl")},
        **more,
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(("on_shutdown", "left"), [("hold", 16), ("restore", 64)])
async def test_signal_ends_it_orderly(tmp_path: Path, on_shutdown: str, left: int) -> None:
    async with FakeSGLang(FakeEngine(running=8)) as server:
        config = write_config(tmp_path, server, on_shutdown=on_shutdown)
        async with controller(tmp_path, config) as run:
            await run.until(lambda: server.engine.budget == 16, "budget followed")
            assert await run.end(signal.SIGTERM) == 0
            assert run.events()[0] == "started"
            assert run.events()[-1] == "stopped"
        assert server.engine.budget == left


async def test_killed_in_the_middle_of_an_apply_and_started_again(tmp_path: Path) -> None:
    async with FakeSGLang(FakeEngine(running=8)) as server:
        config = write_config(tmp_path, server)
        server.faults.hang.add(CONTROL)
        async with controller(tmp_path, config) as run:
            async with httpx.AsyncClient(base_url=run.url, headers=TOKEN) as client:
                await run.until(lambda: server.open[CONTROL] > 0, "a control call under way")
                target = (await client.get("/v1/targets")).json()["targets"][0]["id"]
                pin = {"budget": 32, "ttl_s": 600}
                answer = await client.put(f"/v1/targets/{target}/pin", json=pin)
                assert answer.status_code == 200
            assert await run.end(signal.SIGKILL) == -signal.SIGKILL
        server.faults.hang.clear()
        async with controller(tmp_path, config) as run:
            await run.until(lambda: server.engine.budget == 32, "the pin survived and is in force")
            async with httpx.AsyncClient(base_url=run.url, headers=TOKEN) as client:
                assert (await client.delete(f"/v1/targets/{target}/pin")).status_code == 204
            await run.until(lambda: server.engine.budget == 16, "the load decides again")


async def test_a_pause_survives_a_kill(tmp_path: Path) -> None:
    async with FakeSGLang(FakeEngine(running=8)) as server:
        config = write_config(tmp_path, server)
        async with controller(tmp_path, config) as run:
            await run.until(lambda: server.engine.budget == 16, "budget followed")
            async with httpx.AsyncClient(base_url=run.url, headers=TOKEN) as client:
                assert (await client.post("/v1/pause")).status_code == 200
            assert await run.end(signal.SIGKILL) == -signal.SIGKILL
        server.engine.budget = 64
        async with controller(tmp_path, config) as run:
            await run.until(lambda: run.events().count("decided") >= 2, "it decides")
            async with httpx.AsyncClient(base_url=run.url, headers=TOKEN) as client:
                assert (await client.get("/v1/targets")).json()["paused"]
                assert server.engine.budget == 64, "and applies nothing"
                assert (await client.post("/v1/resume")).status_code == 200
            await run.until(lambda: server.engine.budget == 16, "it applies again")


@pytest.mark.parametrize("on_shutdown", ["hold", "restore"])
async def test_a_signal_in_the_middle_of_an_apply_still_ends_it(
    tmp_path: Path, on_shutdown: str
) -> None:
    async with FakeSGLang(FakeEngine(running=8)) as server:
        config = write_config(tmp_path, server, on_shutdown=on_shutdown)
        server.faults.hang.add(CONTROL)
        async with controller(tmp_path, config) as run:
            await run.until(lambda: server.open[CONTROL] > 0, "a control call under way")
            assert await run.end(signal.SIGTERM) == 0, run.said()
            assert run.events()[-1] == "stopped"
            assert "Traceback" not in run.said()


async def test_a_host_that_accepts_and_never_answers(tmp_path: Path) -> None:
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with FakeSGLang(FakeEngine(running=8)) as server:
        config = write_config(
            tmp_path, server, targets=[server.url, {"url": f"http://127.0.0.1:{port}", "id": "x"}]
        )
        async with controller(tmp_path, config) as run:
            await run.until(lambda: server.engine.budget == 16, "the other one is controlled")
            async with httpx.AsyncClient(base_url=run.url) as client:
                last = (await client.get("/v1/decisions?target=x&limit=1")).json()["decisions"]
                assert (await client.get("/livez")).status_code == 200
            assert last[0]["reason"] == "source_timeout"
            assert await run.end(signal.SIGTERM) == 0, run.said()
            assert "Traceback" not in run.said()
    silent.close()


async def test_sighup_reloads_and_keeps_the_old_one_on_error(tmp_path: Path) -> None:
    async with FakeSGLang(FakeEngine(running=8)) as server:
        config = write_config(tmp_path, server)
        async with controller(tmp_path, config) as run:
            await run.until(lambda: server.engine.budget == 16, "budget followed")
            config.write_text("policy: {min_budget: many}")
            run.process.send_signal(signal.SIGHUP)
            await run.until(lambda: "config_refused" in run.events(), "refused")
            assert "policy.min_budget" in run.said()
            policy = {"interval_s": 0.2, "min_budget": 32, "publish_table": False}
            write_config(tmp_path, server, policy=policy)
            run.process.send_signal(signal.SIGHUP)
            await run.until(lambda: server.engine.budget == 32, "new range in force")
            assert await run.end(signal.SIGINT) == 0


async def test_busy_port_is_said(tmp_path: Path) -> None:
    async with FakeSGLang() as server:
        config = write_config(tmp_path, server, api={"port": server.port})
        tokens = tmp_path / "tokens"
        tokens.write_text("ops 0123456789abcdef\n")
        command = [sys.executable, "-m", "jetspec_controller.cli", "run", "--config", str(config)]
        run = await asyncio.create_subprocess_exec(
            *command, "--token-file", str(tokens), stderr=subprocess.PIPE
        )
        _, said = await asyncio.wait_for(run.communicate(), 60)
        assert run.returncode == 1
        assert b"address already in use" in said.lower()
