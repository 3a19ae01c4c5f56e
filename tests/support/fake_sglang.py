"""A fake SGLang server with JETSPEC: the HTTP surface a controller sees, and ways to break it.

Routes and answers follow SGLang 0.5.23: `/metrics`, `/v1/loads`, `/server_info`,
`POST|PUT /set_internal_state` (HTTP 200 with one bool per rank, `[false]` on refusal, a 422 for
a body it cannot parse), `/ready`; `api_key` and `admin_api_key` guard them as SGLang's own rules
do. `Faults` are switches a test flips while the server runs. Time passes with `clock`; a test
that wants its own time sets `clock` and moves it.

    async with FakeSGLang() as server:
        server.faults.refuse = True
        ...  # requests go to server.url

Run by hand: `python -m tests.support.fake_sglang --port 30000 --running 4`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from types import SimpleNamespace

from aiohttp import web
from prometheus_client.exposition import generate_latest

from tests.support.fake_engine import FakeEngine

CONTROL, METRICS, LOADS, INFO = "/set_internal_state", "/metrics", "/v1/loads", "/server_info"
OPEN_ROUTES = {METRICS, "/ready", "/health"}


@dataclass
class Faults:
    """What goes wrong. Keys of the dictionaries and members of the sets are routes."""

    hang: set[str] = field(default_factory=set)
    drop: set[str] = field(default_factory=set)
    slow: dict[str, float] = field(default_factory=dict)
    status: dict[str, int] = field(default_factory=dict)
    body: dict[str, str] = field(default_factory=dict)
    nan: set[str] = field(default_factory=set)
    refuse: bool = False
    ignore_control: bool = False
    no_jetspec: bool = False
    skew: float = 0.0


class FakeSGLang:
    """One server on a loopback port. `calls` counts requests per route, `open` those under way."""

    def __init__(
        self,
        engine: FakeEngine | None = None,
        *,
        api_key: str | None = None,
        admin_api_key: str | None = None,
        clock: Callable[[], float] = time.time,
        port: int = 0,
    ) -> None:
        self.engine = engine or FakeEngine()
        self.faults = Faults()
        self.api_key, self.admin_api_key = api_key, admin_api_key
        self.clock = clock
        self.port = port
        self.calls: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.most_open: Counter[str] = Counter()
        self.applied: list[dict[str, float]] = []
        self._runner: web.AppRunner | None = None
        self._seen = clock()
        self.engine.now = self._seen

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeSGLang:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; after `stop` on the same port as before."""
        self._runner = web.AppRunner(self.app(), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections and cut those that are open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self) -> None:
        """A new process on the same port: counters, budget and table start over."""
        await self.stop()
        self.engine.restart()
        await self.start()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._faulty])
        app.router.add_get(METRICS, self._metrics)
        app.router.add_get(LOADS, self._loads)
        app.router.add_get(INFO, self._server_info)
        app.router.add_post(CONTROL, self._control)
        app.router.add_put(CONTROL, self._control)
        for route in OPEN_ROUTES - {METRICS}:
            app.router.add_get(route, self._ready)
        app.router.add_get("/model_info", self._model_info)
        return app

    def catch_up(self) -> None:
        """Let the engine live through the time that passed since the last look."""
        now = self.clock()
        self.engine.advance(max(0.0, now - self._seen))
        self._seen = now

    @web.middleware
    async def _faulty(
        self, request: web.Request, handler: Callable[[web.Request], object]
    ) -> web.StreamResponse:
        route, faults = request.path, self.faults
        self.calls[route] += 1
        self.open[route] += 1
        self.most_open[route] = max(self.most_open[route], self.open[route])
        try:
            if not self._allowed(request):
                return web.json_response({"error": "Unauthorized"}, status=401)
            if route in faults.drop:
                request.transport.abort()
            if route in faults.hang:
                await asyncio.sleep(3600)
            await asyncio.sleep(faults.slow.get(route, 0.0))
            if route in faults.status:
                return web.json_response({"error": "fault"}, status=faults.status[route])
            if route in faults.body:
                return web.Response(text=faults.body[route])
            self.catch_up()
            response = await handler(request)
            response.headers["Date"] = formatdate(self.clock() + faults.skew, usegmt=True)
            return response
        finally:
            self.open[route] -= 1

    def _allowed(self, request: web.Request) -> bool:
        if request.path in OPEN_ROUTES:
            return True
        admin = request.path == CONTROL and self.admin_api_key
        key = self.admin_api_key if admin else self.api_key
        sent = request.headers.get("Authorization", "")
        return key is None or secrets.compare_digest(sent, f"Bearer {key}")

    async def _metrics(self, request: web.Request) -> web.Response:
        text = generate_latest(SimpleNamespace(collect=self.engine.families)).decode()
        lines = [self.spoil(line) for line in text.splitlines()]
        if self.faults.no_jetspec:
            lines = [line for line in lines if "jetspec_" not in line]
        return web.Response(text="\n".join(lines) + "\n")

    def spoil(self, line: str) -> str:
        name = line.partition("{")[0].partition(" ")[0]
        head, _, value = line.rpartition(" ")
        if name in self.faults.nan:
            return f"{head} NaN"
        if name == "jetspec_last_round_timestamp_seconds":
            return f"{head} {float(value) + self.faults.skew}"
        return line

    async def _loads(self, request: web.Request) -> web.Response:
        loads = [self.engine.load(rank) for rank in range(self.engine.dp_size)]
        for load in loads:
            load["timestamp"] += self.faults.skew
        now = datetime.fromtimestamp(self.clock() + self.faults.skew, UTC)
        return web.json_response({"timestamp": now.isoformat(), "version": "0", "loads": loads})

    async def _server_info(self, request: web.Request) -> web.Response:
        state = {"speculative_num_draft_tokens": self.engine.max_budget}
        if not self.faults.no_jetspec:
            state["jetspec"] = self.engine.read_back()
        return web.json_response({"version": "0", "internal_states": [state] * self.engine.dp_size})

    async def _control(self, request: web.Request) -> web.Response:
        try:
            changes = (await request.json())["server_args"]
            numbers = {key: value + 0 for key, value in changes.items()}
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
            return web.json_response({"error": "server_args: numbers only"}, status=422)
        if self.faults.refuse:
            self.engine.last_refusal = "told to refuse"
            return web.json_response([False] * self.engine.dp_size)
        if self.faults.ignore_control:
            return web.json_response([True] * self.engine.dp_size)
        taken = self.engine.set_budget(numbers)
        if taken:
            self.applied.append(numbers)
        return web.json_response([taken] * self.engine.dp_size)

    async def _model_info(self, request: web.Request) -> web.Response:
        return web.json_response({"model_path": "fake-target", "is_generation": True})

    async def _ready(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--running", type=int, default=1)
    parser.add_argument("--dp-size", type=int, default=1)
    options = parser.parse_args()
    engine = FakeEngine(running=options.running, dp_size=options.dp_size)
    web.run_app(FakeSGLang(engine).app(), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
