"""Two real host servers behind a real sglang-router, and one controller that finds them there.

Everything starts through the images' entrypoints, with keys from files. Clients speak to the router
alone; the servers take control calls only with their admin key, and show it to nobody. One server is
killed and started again on its port: its pin is in force again, and no answer is wrong.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from jetspec_controller.targets import host_port

from jetspec_sglang import embedded
from tests.integration.conftest import HOST, SERVER, jetspec_flags
from tests.support import prompts
from tests.support.controller_process import TOKEN, controller
from tests.support.server import READY_SECONDS, Server, end, free_port

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1800),
]

ENTRYPOINTS = Path(__file__).parents[3] / "deploy" / "docker"
API_KEY, ADMIN_KEY = "key-of-the-clients", "key-of-the-controller"
LAUNCH_BUDGET = 64
PINNED = 4
STREAMS = 8
TOKENS = 32
TEXTS = prompts.texts(16)


class Fleet:
    """Two servers on ports that stay theirs, and their router."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = (free_port(), free_port())
        with ThreadPoolExecutor(2) as pool:
            self.servers = list(pool.map(self.start, range(2)))
        self.url = f"http://127.0.0.1:{free_port()}"
        self.router_log = folder / "router.log"
        options = {
            "--host": "127.0.0.1",
            "--port": self.url.rpartition(":")[2],
            "--policy": "round_robin",
            "--prometheus-port": str(free_port()),
            "--health-check-endpoint": "/ready",
            "--health-check-interval-secs": "2",
            "--health-failure-threshold": "1",
            "--health-success-threshold": "1",
        }
        flags = [part for pair in options.items() for part in pair]
        workers = ["--worker-urls", *(server.url for server in self.servers)]
        self.router = self.run("router", self.router_log, *flags, *workers)

    def run(self, image: str, log: Path, *flags: str, **variables: str) -> subprocess.Popen[bytes]:
        """What a container of that image runs, with the keys from files."""
        own = Path(tempfile.mkdtemp(dir=self.folder))
        for name, key in {"API": API_KEY, "ADMIN": ADMIN_KEY}.items():
            (own / name).write_text(f"{key}\n")
            variables[f"JETSPEC_{name}_KEY_FILE"] = str(own / name)
        programs = [str(Path(sys.executable).parent), os.environ["PATH"]]
        variables |= {"PATH": os.pathsep.join(programs), "TMPDIR": str(own)}
        with log.open("w") as out:
            return subprocess.Popen(
                [str(ENTRYPOINTS / f"{image}-entrypoint.sh"), *flags],
                stdout=out,
                stderr=out,
                env={**os.environ, **variables},
                start_new_session=True,
            )

    def start(self, number: int) -> Server:
        """Server `number` on its port, once it answers."""
        head = embedded.head_path()
        assert head is not None, "the package ships a head"
        log = self.folder / f"server-{number}-{time.time():.0f}.log"
        port = self.ports[number]
        flags = [
            *("--model-path", str(embedded.target_path()), *SERVER, *jetspec_flags(Path(head))),
            *("--max-total-tokens", "8192", "--port", str(port)),
        ]
        settings = json.dumps({"budget": LAUNCH_BUDGET})
        process = self.run("engine", log, *flags, **HOST, JETSPEC_SETTINGS=settings)
        server = Server(process, f"http://127.0.0.1:{port}", log)
        server.client.headers["Authorization"] = f"Bearer {API_KEY}"
        server._wait(time.monotonic() + READY_SECONDS)
        return server

    def stop(self) -> None:
        end(self.router)
        for server in self.servers:
            server.stop()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    started = Fleet(tmp_path_factory.mktemp("fleet"))
    yield started
    started.stop()


class Clients:
    """`STREAMS` clients of the router, each with one request in flight; temperature 0."""

    def __init__(self, url: str) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        self.client = httpx.AsyncClient(
            base_url=url,
            timeout=120,
            limits=limits,
            trust_env=False,
            headers={"Authorization": f"Bearer {API_KEY}"},
        )
        self.answers: dict[str, Counter[str]] = {text: Counter() for text in TEXTS}
        self.failed = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def ask(self, text: str) -> str:
        body = {
            "model": "any",
            "messages": [{"role": "user", "content": text}],
            "max_tokens": TOKENS,
            "temperature": 0,
        }
        answer = await self.client.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        return answer.json()["choices"][0]["message"]["content"]

    async def _run(self, number: int) -> None:
        while True:
            text = TEXTS[number % len(TEXTS)]
            number += 1
            try:
                self.answers[text][await self.ask(text)] += 1
            except httpx.HTTPError:
                self.failed += 1

    def start(self) -> None:
        self.tasks = [asyncio.create_task(self._run(number)) for number in range(STREAMS)]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.client.aclose()

    @property
    def answered(self) -> int:
        return sum(sum(found.values()) for found in self.answers.values())


async def plain_answers(server: Server) -> dict[str, str]:
    """What one server says at budget 1: plain decoding."""
    header = {"Authorization": f"Bearer {ADMIN_KEY}"}
    body = {"server_args": {"jetspec_tree_budget": 1}}
    reply = server.client.post("/set_internal_state", json=body, headers=header)
    assert reply.json() == [True], reply.text
    clients = Clients(server.url)
    found = {text: await clients.ask(text) for text in TEXTS}
    await clients.stop()
    body["server_args"]["jetspec_tree_budget"] = LAUNCH_BUDGET
    server.client.post("/set_internal_state", json=body, headers=header)
    return found


def budget(server: Server) -> int:
    """In force now; a table (none is published here) would be another matter."""
    return server.jetspec()["budget"]


async def until(condition: Any, what: str, seconds: float = 90) -> float:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if await asyncio.to_thread(condition):
            return time.monotonic() - began
        await asyncio.sleep(0.5)
    raise AssertionError(what)


def events(audit: Path, target: str, since: float) -> list[str]:
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    wanted = [line for line in lines if line.get("target") == target and line["at"] >= since]
    return [f"{line['event']} {line.get('reason', '')}".strip() for line in wanted]


async def test_two_servers_behind_a_router(fleet: Fleet, tmp_path: Path) -> None:
    one, two = fleet.servers
    plain = await plain_answers(one)
    refused = one.client.post("/set_internal_state", json={"server_args": {}})
    assert refused.status_code == 401, "the clients' key moves no budget"
    shown = one.client.get("/server_info").text + one.log_text()
    assert "<redacted>" in shown
    assert ADMIN_KEY not in shown
    assert API_KEY not in shown
    admin = {"Authorization": f"Bearer {ADMIN_KEY}"}
    through = httpx.post(f"{fleet.url}/set_internal_state", json={"server_args": {}}, headers=admin)
    assert through.status_code == 404, "the router does not forward the control route"
    names = [host_port(server.url) for server in fleet.servers]
    keys = {"api": API_KEY, "admin": ADMIN_KEY}
    for name, key in keys.items():
        (tmp_path / name).write_text(f"{key}\n")
    content = {
        "discovery": {
            "router": {"url": fleet.url, "refresh_s": 2, "bearer": {"file": str(tmp_path / "api")}}
        },
        "control": {f"{name}_key": {"file": str(tmp_path / name)} for name in keys},
        "policy": {"interval_s": 2, "publish_table": False},
        "state": {"path": str(tmp_path / "state.sqlite")},
        "audit": {"path": str(tmp_path / "audit.jsonl")},
    }
    config = tmp_path / "controller.yaml"
    config.write_text(json.dumps(content))

    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(controller(tmp_path, config))
        api = await stack.enter_async_context(httpx.AsyncClient(base_url=run.url, headers=TOKEN))
        clients = Clients(fleet.url)
        stack.push_async_callback(clients.stop)
        clients.start()
        took = [
            await until(lambda s=server: budget(s) < LAUNCH_BUDGET, f"{server.url} is not steered")
            for server in fleet.servers
        ]
        print("steered down after", [f"{t:.0f} s" for t in took])
        await asyncio.sleep(20)
        steady = [budget(server) for server in fleet.servers]
        print(f"{STREAMS} streams: budgets {LAUNCH_BUDGET} -> {steady}, {clients.answered} answers")
        assert clients.failed == 0

        pin = {"budget": PINNED, "ttl_s": 3600, "reason": "a pin to be kept"}
        answer = await api.put(f"/v1/targets/{names[1]}/pin", json=pin)
        assert answer.status_code == 200, answer.text
        await until(lambda: budget(two) == PINNED, "the pin is not in force")

        killed, before = time.time(), clients.answered
        await asyncio.to_thread(two.stop)
        await asyncio.sleep(15)
        down, failed = clients.answered - before, clients.failed
        print(f"one server killed: {down} answers in 15 s from the other, {failed} failed")
        assert down > 0
        two = await asyncio.to_thread(fleet.start, 1)
        fleet.servers[1] = two
        back = await until(lambda: budget(two) == PINNED, "the pin is not in force again")
        seen = events(tmp_path / "audit.jsonl", names[1], killed)
        print(f"restarted: budget {PINNED} again {back:.0f} s after it answered; {seen}")
        assert "restarted" in seen
        assert "decided restart_reapply" in seen
        failed_then = clients.failed
        await api.delete(f"/v1/targets/{names[1]}/pin")
        started = two.jetspec()["rounds"]
        await until(lambda: two.jetspec()["rounds"] > started, "the router does not use it again")
        await asyncio.sleep(10)
        print(f"at the end: budgets {[budget(server) for server in fleet.servers]}, ", end="")
        print(f"{clients.answered} answers, {clients.failed} failed")
        assert clients.failed == failed_then
        await clients.stop()
    wrong = {text: found for text, found in clients.answers.items() if set(found) - {plain[text]}}
    assert not wrong
