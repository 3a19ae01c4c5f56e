"""`jetspec serve` watched by a real Prometheus with the repository's rules, under load.

`watched(served, folder)` starts Prometheus beside server and controller, and ends it; `drive` makes
the load: 1 to 20 requests in flight, streamed and not, at budgets that the controller, a pin and a
hand choose, with an aborted request, a pause, and retractions, as the KV pool is small. About half
a minute.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from deploy.stack import demo, prometheus
from jetspec_sglang.client.supervise import end, is_ready, start
from tests.support.ports import free_port
from tests.support.prompts import SYSTEM
from tests.support.served import Served

MOST = 20
"""Requests in flight: more than the server runs at a time, so that some wait."""
STAGES = ((1, None), (4, 8), (MOST, None), (2, 16))
"""(requests in flight, pinned budget)."""
STAGE_S = 6.0
TICKS_S = 2.5
"""Two ticks of the controller: it has seen what a hand did."""
SCRAPES_S = 11.0
"""Two scrape intervals: what has just happened is in Prometheus."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Server and controller, Prometheus' address, and the moment at which watching began."""

    served: Served
    prometheus: str
    since: float

    def expositions(self) -> dict[str, str]:
        """What server and controller expose now."""
        urls = {"engine": self.served.url, "controller": self.served.controller}
        return {
            name: httpx.get(f"{url}/metrics", follow_redirects=True, timeout=30).text
            for name, url in urls.items()
        }


@contextlib.contextmanager
def watched(served: Served, folder: Path) -> Iterator[Watched]:
    """Prometheus beside server and controller."""
    since = time.time()
    jobs = {"sglang": served.url, "jetspec-controller": served.controller}
    companion = prometheus.companion(folder, free_port(), "1d", jobs)
    process = start(["env", "GOMAXPROCS=1", *companion["command"]], companion["log"])
    try:
        _until_ready(companion["ready"], Path(companion["log"]))
        yield Watched(served, companion["page"], since)
    finally:
        end(process, signal.SIGTERM, 20)


def _until_ready(url: str, log: Path) -> None:
    deadline = time.monotonic() + 60
    while not is_ready(url, ""):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def drive(live: Watched, prompts: Sequence[str]) -> None:
    """The load. Every answer is checked to be one."""
    with demo.connect(live.served.url, None, MOST) as client, _control(live) as control:
        target = control.get("/v1/targets").json()["targets"][0]["id"]
        for concurrency, budget in STAGES:
            if budget is not None:
                pin = {"budget": budget, "ttl_s": 600}
                control.put(f"/v1/targets/{target}/pin", json=pin).raise_for_status()
            statuses = demo.stage(client, prompts, concurrency, STAGE_S, temperature=0)
            assert statuses
            assert {*statuses} == {200}
            if budget is not None:
                control.delete(f"/v1/targets/{target}/pin").raise_for_status()
        _abort(client, prompts[0])
        _set_by_hand(client, 3)  # no tier, so never the controller's own choice
        time.sleep(TICKS_S)
        control.post("/v1/pause").raise_for_status()
        _retract(client, prompts)
        control.post("/v1/resume").raise_for_status()


def _control(live: Watched) -> httpx.Client:
    return httpx.Client(base_url=live.served.controller, headers=live.served.token, timeout=30)


def _retract(client: httpx.Client, prompts: Sequence[str]) -> None:
    """Sixteen long prompts at B = 64: a small pool does not hold them, and requests are retracted."""
    _set_by_hand(client, 64)
    client.post("/flush_cache", params={"timeout": 30}).raise_for_status()

    def ask(prompt: str) -> int:
        system = {"role": "system", "content": SYSTEM}
        messages = [system, {"role": "user", "content": prompt}]
        more = {"messages": messages, "max_tokens": 40, "ignore_eos": True, "temperature": 0}
        return demo.ask(client, prompt, stream=False, **more)

    with ThreadPoolExecutor(16) as workers:
        assert {*workers.map(ask, prompts[:16])} == {200}


def _abort(client: httpx.Client, prompt: str) -> None:
    """Leave a streamed answer after its first words."""
    body = {"model": "default", "messages": [{"role": "user", "content": prompt}], "stream": True}
    body |= {"max_tokens": 200, "ignore_eos": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())


def _set_by_hand(client: httpx.Client, budget: int) -> None:
    """What the controller then finds: a budget that it did not decide."""
    body = {"server_args": {"jetspec_tree_budget": budget}}
    assert client.post("/set_internal_state", json=body).json() == [True]
