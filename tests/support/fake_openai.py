"""A fake OpenAI-compatible server that streams with known delays and chunking, or fails as told.

    with FakeOpenAI(Answer(first_s=0.2, gap_s=0.05, chunks=(1, 3, 3))) as server:
        ...  # requests go to server.url

It runs in a thread of its own. `seen` keeps (time, body) of every request,
`sent` the time of every chunk. Run by hand:
`python -m tests.support.fake_openai --port 8000`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

MODEL = "fake-model"


@dataclass
class Answer:
    """How a request is answered.

    `chunks`: tokens of each chunk. `usage`: `continuous` as SGLang and vLLM give it when asked,
    `final` for the last chunk alone. `slots`: requests answered at once, others wait.
    `fail_after`: after so many chunks do as `failure` says: `error` (an error in the stream),
    `stall`, `cut` (close the connection), `stop` (end without saying so), `abort`.
    """

    first_s: float = 0.0
    gap_s: float = 0.0
    chunks: Sequence[int] = (1, 1, 1)
    usage: str = "continuous"
    status: int = 200
    slots: int = 1000
    fail_after: int | None = None
    failure: str = "error"
    fail_every: int = 1
    prompt_tokens: int = 7


class FakeOpenAI:
    """Serves `/v1/models`, `/v1/chat/completions` and `/v1/completions` on a loopback port."""

    def __init__(
        self, answer: Answer | None = None, *, models: Sequence[str] = (MODEL,), port: int = 0
    ) -> None:
        self.answer = answer or Answer()
        self.models = list(models)
        self.port = port
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self.sent: list[float] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ready = threading.Event()
        self._ended = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeOpenAI:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._run())
        self._loop.close()

    async def _run(self) -> None:
        self._slots = asyncio.Semaphore(self.answer.slots)
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_post("/v1/completions", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._ended.wait()
        await runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": one} for one in self.models]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.seen.append((time.time(), body))
        spoiled = self.answer.fail_every and len(self.seen) % self.answer.fail_every == 0
        answer = self.answer
        if answer.status != 200 and spoiled:
            return web.json_response({"error": {"message": "told to fail"}}, status=answer.status)
        async with self._slots:
            with contextlib.suppress(ConnectionError):  # the client hung up
                return await self._stream(request, body, spoiled)
            raise web.HTTPInternalServerError

    async def _stream(
        self, request: web.Request, body: dict[str, Any], spoiled: bool
    ) -> web.StreamResponse:
        answer = self.answer
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        start, total = time.perf_counter(), 0
        for number, tokens in enumerate(answer.chunks):
            due = start + answer.first_s + number * answer.gap_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if spoiled and number == answer.fail_after:
                ended = await self._fail(request, response)
                if ended:
                    return response
            total += tokens
            chunk = _chunk(request.path, "word " * tokens)
            asked = body.get("stream_options", {}).get("continuous_usage_stats", False)
            if answer.usage == "continuous" and asked:
                chunk["usage"] = _usage(answer, total)
            self.sent.append(time.time())
            await _send(response, chunk)
        await _send(response, _chunk(request.path, "", "length"))
        await _send(response, {"choices": [], "usage": _usage(answer, total)})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _fail(self, request: web.Request, response: web.StreamResponse) -> bool:
        """True when nothing may follow."""
        kind = self.answer.failure
        if kind == "error":
            await _send(response, {"error": {"message": "told to fail"}})
        elif kind == "stall":
            await asyncio.sleep(3600)
        elif kind == "cut":
            assert request.transport is not None
            request.transport.abort()
        elif kind == "abort":
            await _send(response, _chunk(request.path, "", "abort"))
            await response.write(b"data: [DONE]\n\n")
        return True


def _chunk(path: str, text: str, finish: str | None = None) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
    if path.endswith("/chat/completions"):
        choice["delta"] = {"content": text}
    else:
        choice["text"] = text
    return {"choices": [choice]}


def _usage(answer: Answer, total: int) -> dict[str, int]:
    return {"prompt_tokens": answer.prompt_tokens, "completion_tokens": total}


async def _send(response: web.StreamResponse, chunk: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(chunk)}\n\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--first", type=float, default=0.1)
    parser.add_argument("--gap", type=float, default=0.05)
    parser.add_argument("--slots", type=int, default=1000)
    options = parser.parse_args()
    answer = Answer(
        first_s=options.first, gap_s=options.gap, chunks=(1, *[3] * 9), slots=options.slots
    )
    with FakeOpenAI(answer, port=options.port):
        threading.Event().wait()


if __name__ == "__main__":
    main()
