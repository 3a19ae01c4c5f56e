"""A controller on fake servers with a clock of its own: `await rig.ticks(3)` is three intervals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from jetspec_controller.core import Decision
from jetspec_controller.service import Service
from jetspec_controller.settings import load
from jetspec_controller.sources import ScrapeSource
from jetspec_controller.targets import host_port

from tests.support.fake_engine import FakeEngine
from tests.support.fake_prometheus import FakePrometheus
from tests.support.fake_sglang import FakeSGLang

IMPATIENT = {"control": {"timeout_s": 0.7}, "scrape": {"timeout_s": 0.7}}
"""For tests of what hangs; elsewhere a busy machine must not look like a fault."""

# A uniform budget and no probes: what a test sees follows from its load alone.
DEFAULTS = {
    "control": {"timeout_s": 5.0},
    "scrape": {"timeout_s": 5.0},
    "policy": {"interval_s": 2.0, "jitter": 0.0, "publish_table": False, "probe_gain": 0.99},
}


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in more.items():
        old = out.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[key] = merged(old, value) if nested else value
    return out


class Rig:
    """The first server is `server`; `prometheus` is there when the rig was made with one."""

    def __init__(
        self,
        service: Service,
        servers: list[FakeSGLang],
        clock: Clock,
        audit: Path,
        prometheus: FakePrometheus | None,
    ) -> None:
        self.service, self.servers, self.clock = service, servers, clock
        self.audit_path, self.prometheus = audit, prometheus

    @property
    def server(self) -> FakeSGLang:
        return self.servers[0]

    @property
    def name(self) -> str:
        return host_port(self.server.url)

    @property
    def decision(self) -> Decision:
        decision = self.service.loop.fleet[self.name].decision
        assert decision is not None
        return decision

    async def ticks(self, count: int = 1, *, scrape: bool = True) -> Decision:
        """Let `count` intervals pass; the first server's last decision."""
        for _ in range(count):
            self.clock.now += self.service.settings.policy.interval_s
            if self.prometheus is not None and scrape:
                self.prometheus.scrape()
            await self.service.loop.tick()
        return self.decision

    def metric(self, name: str, **labels: str) -> float | None:
        full = f"jetspec_controller_{name}"
        return self.service.metrics.registry.get_sample_value(full, labels)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit_path.read_text().splitlines()]


@asynccontextmanager
async def rig(
    folder: Path,
    *,
    servers: int = 1,
    engines: list[FakeEngine] | None = None,
    prometheus: bool = False,
    settings: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    adopt: list[FakeSGLang] | None = None,
) -> AsyncIterator[Rig]:
    """A started service, its loop not running. `adopt` uses servers that already run."""
    clock = clock or Clock()
    async with AsyncExitStack() as stack:
        fakes = adopt or [
            await stack.enter_async_context(FakeSGLang(engine, clock=clock))
            for engine in (engines or [FakeEngine() for _ in range(servers)])
        ]
        wanted: dict[str, Any] = {
            "targets": [fake.url for fake in fakes],
            "api": {"insecure": True},
            "state": {"path": folder / "state.sqlite"},
            "audit": {"path": folder / "audit.jsonl"},
        }
        fake_prometheus = None
        if prometheus:
            fake_prometheus = await stack.enter_async_context(
                FakePrometheus(clock, {host_port(fake.url): fake for fake in fakes})
            )
            wanted["prometheus"] = {"url": fake_prometheus.url, "timeout_s": 5.0}
        flags = merged(merged(DEFAULTS, wanted), settings or {})
        service = Service(load(None, flags), flags=flags, clock=clock)
        await service.start(run=False)
        # Real seconds, while the clock of the test stands still: a busy machine is no fault.
        service.loop.patience_s = flags["control"]["timeout_s"]
        if isinstance(service.loop.source, ScrapeSource):
            service.loop.source._monotonic = clock
        try:
            yield Rig(service, fakes, clock, folder / "audit.jsonl", fake_prometheus)
        finally:
            await service.stop()
