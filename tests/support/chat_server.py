"""A fake SGLang server in a thread, with chat, for commands that talk to a server."""

import asyncio
import json
import threading

import pytest
from aiohttp import web

from tests.support.fake_sglang import FakeSGLang


class ChatServer(FakeSGLang):
    """Streams `chunks` of text, one a "round", then SGLang's usage and speculation chunk."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.chunks = ["The ", "capital ", "is Paris."]
        self.speculation = {"spec_verify_ct": 3, "spec_accept_length": 2.5}
        self.chat_error = None
        self.budget_meanwhile = None
        self.budgets_seen = []
        self.bodies = []

    def app(self):
        app = super().app()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/generate", self._generate)
        return app

    async def _chat(self, request):
        self.bodies.append(await request.json())
        self.budgets_seen.append(self.engine.read_back()["budget"])
        if self.budget_meanwhile is not None:
            self.engine.set_budget({"jetspec_tree_budget": self.budget_meanwhile})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if self.chat_error:
            await self._send(response, {"error": {"message": self.chat_error}})
        for text in self.chunks:
            await self._send(response, {"choices": [{"delta": {"content": text}}]})
            await asyncio.sleep(0.01)
        details = {"spec_tokens_details": self.speculation} if self.speculation else None
        await self._send(response, {"choices": [], "sglext": details})
        await self._send(response, {"choices": [], "usage": {"completion_tokens": 9}})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _generate(self, request):
        assert (await request.json())["sampling_params"] == {"max_new_tokens": 1}
        return web.json_response({"text": " there"})

    async def _send(self, response, chunk):
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())


def _running(server):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
    yield server
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def server():
    yield from _running(ChatServer())


@pytest.fixture
def locked_server():
    """One that wants the key `api` everywhere and `admin` for control."""
    yield from _running(ChatServer(api_key="api", admin_api_key="admin"))


@pytest.fixture(autouse=True)
def _no_outside_settings(monkeypatch):
    for name in ("JETSPEC_API_KEY", "JETSPEC_ADMIN_API_KEY", "JETSPEC_HEAD", "JETSPEC_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
