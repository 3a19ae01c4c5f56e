"""Every way a call can fail has its fault, and the deadline covers the whole of it."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from jetspec_controller.core import Fault
from jetspec_controller.http_client import FetchError, HttpClient

pytestmark = pytest.mark.anyio


async def trickle(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(100):
        await response.write(b"x")
        await asyncio.sleep(0.05)
    return response


async def break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"x")
    request.transport.abort()
    return response


async def big(request: web.Request) -> web.Response:
    return web.Response(body=b"x" * 2000)


async def redirect(request: web.Request) -> web.Response:
    raise web.HTTPFound("/big")


async def status(request: web.Request) -> web.Response:
    return web.Response(status=int(request.query["code"]), text="why  it\nfailed")


async def fine(request: web.Request) -> web.Response:
    return web.Response(body=b'{"a": 1}', headers={"Date": "Thu, 01 Jan 2026 00:00:10 GMT"})


@pytest.fixture
async def base():
    app = web.Application()
    for handler in (trickle, break_off, big, redirect, status, fine):
        app.router.add_get(f"/{handler.__name__}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_answer_and_the_peer_s_clock(base: str) -> None:
    async with HttpClient() as client:
        reply = await client.get(f"{base}/fine", timeout_s=2.0)
    assert reply.json() == {"a": 1}
    assert reply.peer_time == 1767225610.0


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/trickle", Fault.TIMEOUT),
        ("/break_off", Fault.DOWN),
        ("/big", Fault.PARSE),
        ("/redirect", Fault.HTTP),
        ("/status?code=401", Fault.UNAUTHORISED),
        ("/status?code=403", Fault.UNAUTHORISED),
        ("/status?code=404", Fault.HTTP),
        ("/status?code=500", Fault.HTTP),
    ],
)
async def test_failures_are_named(base: str, path: str, fault: Fault) -> None:
    async with HttpClient(max_body_bytes=1000) as client:
        started = time.monotonic()
        with pytest.raises(FetchError) as error:
            await client.get(base + path, timeout_s=0.4)
        assert time.monotonic() - started < 1.0
    assert error.value.fault is fault


async def test_nobody_listens() -> None:
    async with HttpClient() as client:
        with pytest.raises(FetchError) as error:
            await client.get("http://127.0.0.1:9", timeout_s=1.0)
        assert error.value.fault is Fault.DOWN


async def test_body_that_is_not_what_was_asked_for(base: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(FetchError) as error:
            (await client.get(f"{base}/big", timeout_s=1.0)).json()
        assert error.value.fault is Fault.PARSE
