"""The whole path for real: two SGLang servers, a Prometheus or none, the controller's own process,
and a load that steps 1 → 8 → 1.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from jetspec_controller.targets import host_port

from jetspec_sglang.embedded import head_path
from tests.integration.conftest import StartServer, jetspec_flags
from tests.support import prompts, real_prometheus
from tests.support.controller_process import Controller, controller
from tests.support.server import Server, total

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(3600),
]

TICK_S = 4.0
SCRAPE_S = 2
PHASE_TICKS = 10
MOST_TICKS = 3
TOLERANCE = 0.05
"""The policy's own: a budget within this of the best one by the cost curves is right."""

CALM = {"optimal", "within_tolerance"}


class Streams:
    """Clients of one server, each with one request in flight."""

    def __init__(self, server: Server) -> None:
        self.failures: list[str] = []
        self.answered = 0
        self._server = server
        self._prompts = itertools.cycle([prompts.chat_ids(text) for text in prompts.texts(40)])
        self._wanted = 0
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def set(self, count: int) -> None:
        """Returns once exactly so many are at work."""
        self._wanted = count
        for number in range(len(self._threads), count):
            thread = threading.Thread(target=self._run, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        for thread in self._threads[count:]:
            thread.join()
        del self._threads[count:]

    def _run(self, number: int) -> None:
        while number < self._wanted:
            with self._lock:
                ids = next(self._prompts)
            sampling = {"max_new_tokens": 48, "temperature": 0, "ignore_eos": True}
            try:
                answer = self._server.generate({"input_ids": ids, "sampling_params": sampling})
                assert answer["meta_info"]["completion_tokens"] == 48, answer["meta_info"]
            except (AssertionError, httpx.HTTPError, KeyError) as error:
                self.failures.append(repr(error))
            else:
                self.answered += 1


@dataclass(frozen=True)
class Phase:
    """What one server did while its load stood still.

    `budget` is what it was given in most of the later ticks. `followed` counts ticks from the step
    until the budget was right, by the cost curves, for a batch like the new one.
    """

    streams: int
    budget: int
    followed: int
    reasons: tuple[str, ...]
    changes: int
    rounds: Mapping[int, int]


@pytest.fixture(scope="module")
def servers(start_server: StartServer) -> Iterator[list[Server]]:
    head = head_path()
    assert head is not None, "the package ships a head"
    flags = (*jetspec_flags(Path(head)), "--max-total-tokens", "8192", "--disable-radix-cache")
    started: list[Server] = []
    try:
        for name in ("one", "two"):
            started.append(start_server(name, *flags))
        yield started
    finally:
        for server in started:
            server.stop()


def write_config(
    folder: Path, servers: list[Server], prometheus: int | None, *, publish_table: bool
) -> Path:
    content: dict[str, Any] = {
        "targets": [server.url for server in servers],
        "policy": {"interval_s": TICK_S, "publish_table": publish_table},
        "state": {"path": str(folder / "state.sqlite")},
        "audit": {"path": str(folder / "audit.jsonl")},
        "on_shutdown": "restore",
        "record": str(folder / "observations.jsonl"),
    }
    if prometheus is not None:
        content["prometheus"] = {"url": f"http://127.0.0.1:{prometheus}"}
    path = folder / "controller.yaml"
    path.write_text(json.dumps(content))
    return path


async def decisions(run: Controller, server: Server, since: float) -> list[dict[str, Any]]:
    """Of one server, oldest first."""
    query = {"target": host_port(server.url), "since": since, "limit": 1000}
    async with httpx.AsyncClient(base_url=run.url, timeout=30) as client:
        answer = await client.get("/v1/decisions", params=query)
    return list(reversed(answer.json()["decisions"]))


def rounds(server: Server) -> Counter[int]:
    series = server.metrics()
    budgets = {dict(labels)["budget"] for name, labels in series if name == "jetspec_rounds_total"}
    return Counter({int(b): total(series, "jetspec_rounds_total", budget=b) for b in budgets})


def follows(entry: Mapping[str, Any], streams: int) -> bool:
    seen = entry["batch"] is not None and 0.6 * streams <= entry["batch"] <= 1.6 * streams
    return seen and (entry["budget"] == entry["best_budget"] or entry["gain"] <= TOLERANCE)


async def phase(
    run: Controller, servers: list[Server], streams: list[Streams], count: int
) -> list[Phase]:
    """Sets the load of all servers, waits, and says how each one's budget followed."""
    await asyncio.gather(*(asyncio.to_thread(each.set, count) for each in streams))
    since = time.time()
    await asyncio.sleep(PHASE_TICKS / 2 * TICK_S)
    half = [rounds(server) for server in servers]
    await asyncio.sleep(PHASE_TICKS / 2 * TICK_S)
    found = []
    for server, before in zip(servers, half, strict=True):
        made = await decisions(run, server, since)
        budgets = [entry["budget"] for entry in made]
        found.append(
            Phase(
                count,
                Counter(budgets[len(budgets) // 2 :]).most_common(1)[0][0],
                1 + next(i for i, entry in enumerate(made) if follows(entry, count)),
                tuple(entry["reason"] for entry in made),
                sum(entry["result"] is not None for entry in made),
                dict(rounds(server) - before),
            )
        )
        assert {entry["result"] for entry in made} <= {None, "applied"}, made
        for entry in made:
            assert entry["reason"] not in CALM or entry["gain"] <= TOLERANCE, entry
    return found


@pytest.mark.parametrize("publish_table", [True, False], ids=["table", "budget"])
@pytest.mark.parametrize("through", ["prometheus", "scrape"])
async def test_budgets_follow_a_step_up_and_down(
    servers: list[Server],
    prometheus: str,
    tmp_path: Path,
    unused_port: int,
    through: str,
    publish_table: bool,
) -> None:
    port = unused_port if through == "prometheus" else None
    config = write_config(tmp_path, servers, port, publish_table=publish_table)
    streams = [Streams(server) for server in servers]
    launch = [server.jetspec() for server in servers]
    async with AsyncExitStack() as stack:
        stack.callback(lambda: [each.set(0) for each in streams])
        if port is not None:
            instances = [host_port(server.url) for server in servers]
            await stack.enter_async_context(
                real_prometheus.running(prometheus, tmp_path, instances, port, scrape_s=SCRAPE_S)
            )
        run = await stack.enter_async_context(controller(tmp_path, config))
        phases = []
        for count in (1, 8, 1):
            phases.append(await phase(run, servers, streams, count))
            print(f"{through}, {'table' if publish_table else 'budget'}:", *phases[-1], sep="\n  ")
        await asyncio.gather(*(asyncio.to_thread(each.set, 0) for each in streams))
        assert await run.end(signal.SIGTERM) == 0, run.said()

    print("answered", [each.answered for each in streams])
    assert [each.failures for each in streams] == [[], []]
    assert min(each.answered for each in streams) >= 8
    for found in phases[1:]:
        assert all(one.followed <= MOST_TICKS for one in found), found
    for number, server in enumerate(servers):
        idle, busy, again = (found[number] for found in phases)
        assert busy.budget < idle.budget, "rows cost time on a CPU"
        assert again.budget > busy.budget, phases
        assert all(one.budget in one.rounds for one in (idle, busy, again)), "the engine ran it"
        after = server.jetspec()
        assert (after["budget"], after["table"]) == (
            launch[number]["budget"],
            launch[number]["table"],
        ), "restored at the end"
