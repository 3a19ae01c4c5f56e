"""A real sglang-router in front: control goes to its workers, never to the router."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from jetspec_controller.core import Reason
from jetspec_controller.service import Service
from jetspec_controller.settings import load

from tests.support.fake_engine import FakeEngine
from tests.support.fake_sglang import FakeSGLang
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.skipif(
        importlib.util.find_spec("sglang_router") is None,
        reason="sglang-router is not installed; pip install sglang-router",
    ),
]


async def workers_of(url: str, count: int, log: Path) -> None:
    async with aiohttp.ClientSession() as session:
        for _ in range(400):
            try:
                async with session.get(f"{url}/workers") as response:
                    if (await response.json())["total"] == count:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


async def test_workers_are_found_and_controlled(tmp_path: Path, unused_port: int) -> None:
    url = f"http://127.0.0.1:{unused_port}"
    async with FakeSGLang(FakeEngine(running=8)) as one, FakeSGLang(FakeEngine()) as two:
        log = tmp_path / "router.log"
        command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
        options = ["--port", str(unused_port), "--worker-urls", one.url, two.url]
        metrics = ["--prometheus-port", str(free_port())]
        with log.open("w") as out:
            router = subprocess.Popen([*command, *options, *metrics], stdout=out, stderr=out)
        try:
            await workers_of(url, 2, log)
            wanted = load(
                None,
                {
                    "discovery": {"router": {"url": url}},
                    "targets": [{"url": url, "id": "router-by-mistake"}],
                    "policy": {"interval_s": 1.0, "dwell_s": 0.0, "publish_table": False},
                    "api": {"insecure": True},
                    "state": {"path": tmp_path / "state.sqlite"},
                    "audit": {"path": tmp_path / "audit.jsonl"},
                },
            )
            service = Service(wanted)
            await service.start(run=False)
            try:
                for _ in range(5):
                    await service.loop.tick()
                    await asyncio.sleep(1.0)
                fleet = service.loop.fleet
                urls = {managed.target.url for managed in fleet.values()}
                assert urls == {one.url, two.url, url}
                assert (one.engine.budget, two.engine.budget) == (16, 64)
                mistaken = fleet["router-by-mistake"]
                assert mistaken.decision.reason is Reason.SOURCE_HTTP
                assert mistaken.last_apply is None, "nothing was sent to the router"
            finally:
                await service.stop()
        finally:
            router.terminate()
            router.wait()
