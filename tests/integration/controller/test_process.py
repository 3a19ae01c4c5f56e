"""The console script as a process: its start, its signals, its end, and a kill in between."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.fake_sglang import CONTROL, FakeSGLang

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

TOKEN = {"Authorization": "Bearer 0123456789abcdef"}


class Controller:
    """One run of `jetspec-controller run` and what it writes."""

    def __init__(self, folder: Path, config: Path, *flags: str) -> None:
        tokens = folder / "tokens"
        tokens.write_text("ops 0123456789abcdef\n")
        self.log = folder / "log"
        self.audit = folder / "audit.jsonl"
        command = [sys.executable, "-m", "jetspec_controller.cli", "run"]
        options = ["--config", str(config), "--port", "0", "--token-file", str(tokens)]
        with self.log.open("ab") as log:
            self.start_of_log = log.tell()
            self.process = subprocess.Popen(
                [*command, *options, *flags],
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.url = ""

    def said(self) -> str:
        return self.log.read_bytes()[self.start_of_log :].decode()

    async def until(self, condition, what: str, seconds: float = 40.0) -> None:
        for _ in range(int(seconds / 0.1)):
            if self.process.poll() is not None:
                break
            if condition():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{what}: {self.said()}")

    async def started(self) -> None:
        await self.until(lambda: "serving on " in self.said(), "started")
        self.url = self.said().split("serving on ")[1].split()[0]

    async def end(self, number: int) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 20)

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.audit.read_text().splitlines()]


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


@asynccontextmanager
async def controller(folder: Path, config: Path) -> AsyncIterator[Controller]:
    run = Controller(folder, config)
    try:
        await run.started()
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


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
