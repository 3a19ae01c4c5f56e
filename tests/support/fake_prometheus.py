"""A fake Prometheus: scrapes fake servers when told to, answers the controller's one query.

It understands range selectors by name, instance and span, keeps scrape times on its own clock, and
writes `up`. Faults: `status`, `body` (a whole answer), `hang`, and `result_type`.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from email.utils import formatdate
from types import SimpleNamespace

from aiohttp import web
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fake_sglang import FakeSGLang

SELECTOR = re.compile(
    r'(?P<name>[\w:]*)\{(__name__=~"(?P<names>[^"]+)",)?\w+=~"(?P<instances>[^"]+)"[^}]*\}'
    r"\[(?P<span>\d+)s\]"
)


class FakePrometheus:
    """`servers` by instance; one that is None or not `up` gives `up` 0 at the next scrape."""

    def __init__(self, clock: Callable[[], float], servers: dict[str, FakeSGLang]) -> None:
        self.clock = clock
        self.servers = servers
        self.down: set[str] = set()
        self.hang = False
        self.status = 200
        self.body: str | None = None
        self.result_type = "matrix"
        self.bearer: str | None = None
        self.refuse_names: int | None = None  # status of a matcher on __name__
        self.dropped = re.compile("(?!)")  # names of series that it does not keep
        self.replicas: list[dict[str, str]] = [{}]  # labels of each that stores every sample
        self.blind: list[dict[str, str]] = []  # replicas that find every server down
        self.queries: list[str] = []
        self.port = 0
        self._series: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = defaultdict(list)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakePrometheus:
        app = web.Application()
        app.router.add_post("/api/v1/query", self._query)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def scrape(self) -> None:
        """Take one sample of every series of every server, at the present time."""
        now = self.clock()
        for instance, server in self.servers.items():
            up = instance not in self.down
            for replica in self.replicas:
                self.keep("up", {"instance": instance, **replica}, now, "1" if up else "0")
            for replica in self.blind:
                self.keep("up", {"instance": instance, **replica}, now, "0")
            if not up:
                continue
            server.catch_up()
            for line in self._lines(server):
                for family in text_string_to_metric_families(line + "\n"):
                    for sample in family.samples:
                        for replica in self.replicas:
                            labels = {**sample.labels, "instance": instance, **replica}
                            self.keep(sample.name, labels, now, str(sample.value))

    def _lines(self, server: FakeSGLang) -> list[str]:
        if server.faults.no_jetspec:
            return []
        text = generate_latest(SimpleNamespace(collect=server.engine.families)).decode()
        return [server.spoil(line) for line in text.splitlines() if not line.startswith("#")]

    def keep(self, name: str, labels: dict[str, str], at: float, value: str) -> None:
        if self.dropped.fullmatch(name):
            return
        key = tuple(sorted({"__name__": name, **labels}.items()))
        self._series[key].append((at, value))

    async def _query(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.queries.append(str(form["query"]))
        if self.hang:
            await asyncio.sleep(3600)
        if self.bearer and request.headers.get("Authorization") != f"Bearer {self.bearer}":
            return web.Response(status=401)
        if self.status != 200 or self.body is not None:
            return web.Response(status=self.status, text=self.body or "fault")
        match = SELECTOR.fullmatch(str(form["query"]))
        assert match, form["query"]
        if match["names"] and self.refuse_names:
            return web.Response(status=self.refuse_names, text="a regex on __name__")
        names = re.compile(match["names"] or re.escape(match["name"]))
        instances = re.compile(match["instances"].replace("\\\\", "\\"))
        end = float(form.get("time", self.clock()))
        start = end - float(match["span"])
        result = []
        for key, samples in self._series.items():
            labels = dict(key)
            values = [list(sample) for sample in samples if start < sample[0] <= end]
            if (
                values
                and names.fullmatch(labels["__name__"])
                and instances.fullmatch(labels["instance"])
            ):
                result.append({"metric": labels, "values": values})
        body = {"status": "success", "data": {"resultType": self.result_type, "result": result}}
        date = formatdate(self.clock(), usegmt=True)
        return web.json_response(body, headers={"Date": date})
