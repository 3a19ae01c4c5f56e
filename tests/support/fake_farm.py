"""Many fake servers behind one port, each under a path of its own: /s/0, /s/1, …

For tests of scale: the text of a server's metrics is made anew at most once a second, and padded
to the length of a real SGLang's. Run as a process: `python -m tests.support.fake_farm COUNT`; it
prints its port.
"""

from __future__ import annotations

import asyncio
import sys
import time
from types import SimpleNamespace

from aiohttp import web
from prometheus_client.exposition import generate_latest

from tests.support.fake_engine import FakeEngine

FILLER = "".join(
    f'sglang:per_stage_req_latency_seconds_bucket{{le="{le}",model_name="m",stage="s{stage}"}} 1\n'
    for stage in range(20)
    for le in range(30)
)
RENDER_EVERY_S = 1.0


class Farm:
    """Engines catch up when they are looked at, at most once a second."""

    def __init__(self, count: int) -> None:
        self.engines = [FakeEngine(running=1 + number % 16) for number in range(count)]
        self.seen = [0.0] * count
        self.text = [""] * count

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/s/{number}/metrics", self.metrics)
        app.router.add_get("/s/{number}/v1/loads", self.loads)
        app.router.add_get("/s/{number}/server_info", self.server_info)
        app.router.add_post("/s/{number}/set_internal_state", self.control)
        return app

    def catch_up(self, number: int, now: float) -> FakeEngine:
        engine = self.engines[number]
        if now - self.seen[number] >= RENDER_EVERY_S:
            engine.advance(min(now - self.seen[number], 5.0))
            self.seen[number] = now
            registry = SimpleNamespace(collect=engine.families)
            self.text[number] = generate_latest(registry).decode() + FILLER
        return engine

    def engine(self, request: web.Request) -> tuple[int, FakeEngine]:
        number = int(request.match_info["number"])
        return number, self.catch_up(number, time.monotonic())

    async def metrics(self, request: web.Request) -> web.Response:
        number, _ = self.engine(request)
        return web.Response(text=self.text[number])

    async def loads(self, request: web.Request) -> web.Response:
        _, engine = self.engine(request)
        return web.json_response({"loads": [engine.load(0)]})

    async def server_info(self, request: web.Request) -> web.Response:
        _, engine = self.engine(request)
        return web.json_response({"internal_states": [{"jetspec": engine.read_back()}]})

    async def control(self, request: web.Request) -> web.Response:
        _, engine = self.engine(request)
        return web.json_response([engine.set_budget((await request.json())["server_args"])])


def main() -> None:
    async def serve() -> None:
        runner = web.AppRunner(Farm(int(sys.argv[1])).app(), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
