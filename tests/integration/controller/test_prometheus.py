"""A real Prometheus between fake servers and the controller: auth, TLS, `up`, several servers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from jetspec_controller.core import Reason
from jetspec_controller.service import Service
from jetspec_controller.settings import load
from jetspec_controller.targets import host_port

from tests.support.fake_engine import FakeEngine
from tests.support.fake_sglang import FakeSGLang
from tests.support.real_prometheus import running

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


def certificate(folder: Path) -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *files, *subject], check=True, capture_output=True)
    return key, cert


async def ticks_until(service: Service, condition: Callable[[], bool], most: int = 40) -> int:
    for tick in range(1, most + 1):
        await service.loop.tick()
        if condition():
            return tick
        await asyncio.sleep(1.0)
    last = {name: managed.decision for name, managed in service.loop.fleet.items()}
    raise AssertionError(f"not within {most} ticks: {last}")


def settings(folder: Path, port: int, **more: object):
    return load(
        None,
        {
            "prometheus": {"url": f"http://127.0.0.1:{port}", "selector": 'job="sglang"'},
            "policy": {"interval_s": 1.0, "dwell_s": 0.0, "publish_table": False},
            "api": {"insecure": True},
            "state": {"path": folder / "state.sqlite"},
            "audit": {"path": folder / "audit.jsonl"},
            **more,
        },
    )


@asynccontextmanager
async def started(wanted) -> AsyncIterator[Service]:
    service = Service(wanted)
    await service.start(run=False)
    try:
        yield service
    finally:
        await service.stop()


async def test_budgets_follow_load_through_a_real_prometheus(
    prometheus: str, tmp_path: Path, unused_port: int
) -> None:
    async with (
        FakeSGLang(FakeEngine(running=1)) as quiet,
        FakeSGLang(FakeEngine(running=1)) as moving,
    ):
        instances = [host_port(quiet.url), host_port(moving.url)]
        wanted = settings(tmp_path, unused_port, discovery={"prometheus": {"refresh_s": 1}})
        async with (
            running(prometheus, tmp_path, instances, unused_port),
            started(wanted) as service,
        ):
            fleet = service.loop.fleet
            ready = lambda: len(fleet) == 2 and all(t.ready for t in fleet.values())  # noqa: E731
            await ticks_until(service, ready)
            await ticks_until(service, lambda: quiet.engine.budget == moving.engine.budget == 64)
            moving.engine.running = 8
            down = await ticks_until(service, lambda: moving.engine.budget == 16)
            assert quiet.engine.budget == 64
            moving.engine.running = 1
            up = await ticks_until(service, lambda: moving.engine.budget > 16)
            print(f"ticks to follow 1 → 8: {down}, 8 → 1: {up} (1 s scrape, 1 s tick)")
            assert max(down, up) <= 8

            await moving.stop()
            gone = fleet[instances[1]]
            await ticks_until(service, lambda: gone.decision.reason is Reason.SERVER_DOWN)
            assert fleet[instances[0]].ready


async def test_tls_and_basic_auth(
    prometheus: str, tmp_path: Path, unused_port: int, monkeypatch
) -> None:
    key, cert = certificate(tmp_path)
    monkeypatch.setenv("PROMETHEUS_PASSWORD", "correct horse")
    web = {
        "tls_server_config": {"cert_file": str(cert), "key_file": str(key)},
        "basic_auth_users": {"controller": hash_of("correct horse")},
    }
    url = f"https://127.0.0.1:{unused_port}"
    auth = {"basic": {"username": "controller", "password": {"env": "PROMETHEUS_PASSWORD"}}}
    async with FakeSGLang() as server:
        targets = {"targets": [server.url]}
        async with running(prometheus, tmp_path, [host_port(server.url)], unused_port, web):
            good = {"url": url, "tls": {"ca_file": str(cert)}, **auth}
            wanted = settings(tmp_path, unused_port, prometheus=good, **targets)
            async with started(wanted) as service:
                name = host_port(server.url)
                await ticks_until(service, lambda: service.loop.fleet[name].ready)
            cases = [
                ({"url": url, "tls": {"ca_file": str(cert)}}, Reason.SOURCE_UNAUTHORISED),
                ({"url": url, **auth}, Reason.SOURCE_HTTP),
            ]
            for bad, reason in cases:
                wanted = settings(tmp_path, unused_port, prometheus=bad, **targets)
                async with started(wanted) as service:
                    await service.loop.tick()
                    assert service.loop.fleet[name].decision.reason is reason


def hash_of(password: str) -> str:
    """Prometheus wants bcrypt; Debian's htpasswd or Python's crypt can make it."""
    crypt = pytest.importorskip("crypt")
    return crypt.crypt(password, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=2**5))


async def test_the_query_is_one_prometheus_accepts_for_awkward_names(
    prometheus: str, tmp_path: Path, unused_port: int
) -> None:
    from jetspec_controller.settings import PrometheusSettings
    from jetspec_controller.sources.prometheus import query

    wanted = PrometheusSettings(url=f"http://127.0.0.1:{unused_port}", selector='job="a\\"b"')
    text = query(wanted, ["a.b:1", "[::1]:2", 'x"y\\z', "a+b(c)|d"], 30.0)
    async with running(prometheus, tmp_path, [], unused_port), aiohttp.ClientSession() as session:
        url = f"{wanted.url}/api/v1/query"
        async with session.post(url, data={"query": text}) as response:
            body = await response.json()
    assert body == {"status": "success", "data": {"resultType": "matrix", "result": []}}
