"""One streamed request to an OpenAI-compatible server, timed chunk by chunk.

Contract: `ask` fills its record and never raises for what the server does. I/O: one connection per
request, through geventhttpclient, whose `readline` returns a line as soon as it arrives. (Locust's
FastHttpUser returns a stream only at its end, so its TTFT would equal E2E.)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import gevent
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError, HTTPSocketPoolResponse

from loadtests.config import LoadConfig
from loadtests.records import Record
from loadtests.stream import StreamError, StreamReader

CONNECT_TIMEOUT_S = 10.0
_SHOWN = 200


class _CutError(Exception):
    """This client cuts the request off on purpose."""


class _StalledError(Exception):
    """No data arrived for too long after the first token."""


class _GivenUpError(Exception):
    """The request took longer than it may."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of requests, and the common parts of their bodies."""

    url: str
    path: str
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any]
    chat: bool

    @classmethod
    def of(cls, config: LoadConfig, base: str, model: str, key: str, *, sglang: bool) -> Endpoint:
        """`sglang`: ask for the server's figures on speculation too."""
        chat = config.api == "chat"
        body: dict[str, Any] = {
            "model": model,
            "temperature": config.temperature,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        if config.lengths == "fixed":
            body["ignore_eos"] = True
        if sglang:
            body["return_spec_tokens_details"] = True
        body |= json.loads(config.extra_body or "{}")
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        parts = urlsplit(base)
        root = parts.path.rstrip("/").removesuffix("/v1")
        path = f"{root}/v1/{'chat/completions' if chat else 'completions'}"
        return cls(f"{parts.scheme}://{parts.netloc}", path, headers, body, chat)

    def request(self, prompt: str, max_tokens: int) -> bytes:
        asked: dict[str, Any] = (
            {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        )
        return json.dumps({**self.body, **asked, "max_tokens": max_tokens}).encode()


def ask(
    endpoint: Endpoint,
    config: LoadConfig,
    record: Record,
    prompt: str,
    clock: Callable[[], float],
    cut_after: float | None = None,
) -> None:
    """Send, read, and fill `record`. `cut_after`: hang up after this many seconds."""
    reader = StreamReader(record, keep_text=config.keep_text)
    record.prompt = prompt if config.keep_text else ""
    client = HTTPClient.from_url(
        endpoint.url,
        connection_timeout=CONNECT_TIMEOUT_S,
        network_timeout=config.request_timeout,
        block_size=65536,
    )
    given_up = gevent.Timeout.start_new(config.request_timeout, _GivenUpError())
    cut = gevent.Timeout.start_new(cut_after, _CutError()) if cut_after is not None else None
    record.sent = clock()
    try:
        body = endpoint.request(prompt, record.max_tokens)
        response = client.post(endpoint.path, body, endpoint.headers)
        record.http_status = response.status_code
        if response.status_code != 200:
            raise StreamError("http", f"{response.status_code}: {_said(response.read())}")
        while not reader.done and (line := _line(response, record, config)):
            reader.feed(line, clock())
        reader.finish()
    except _CutError:
        record.status = "aborted"
    except _GivenUpError:
        _fail(record, "timeout", f"not finished after {config.request_timeout:g} s")
    except StreamError as error:
        _fail(record, error.kind, str(error))
    except _StalledError:
        after = f"after {record.completion_tokens} tokens"
        _fail(record, "stalled", f"no data for {config.stall_timeout:g} s {after}")
    except (OSError, HTTPParseError) as error:
        kind = "cut" if record.http_status else "connect"
        _fail(record, kind, f"{type(error).__name__}: {error}")
    finally:
        given_up.close()
        if cut is not None:
            cut.close()
        reader.close()
        record.end = clock()
        client.close()


def _line(response: HTTPSocketPoolResponse, record: Record, config: LoadConfig) -> bytes:
    """The next line, empty at the end. Before the first token a request may wait in a queue."""
    if not record.progress:
        return response.readline(b"\n")
    with gevent.Timeout(config.stall_timeout, _StalledError()):
        return response.readline(b"\n")


def clock_from(epoch: float) -> Callable[[], float]:
    """Seconds since the Unix time `epoch`, on a clock that never jumps."""
    zero = time.perf_counter() + (epoch - time.time())
    return lambda: time.perf_counter() - zero


def _fail(record: Record, kind: str, message: str) -> None:
    record.status, record.error_kind, record.error = "failed", kind, message


def _said(body: bytes) -> str:
    text = body.decode(errors="replace")
    try:
        found = json.loads(text)
        error = found.get("error", found) if isinstance(found, dict) else found
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    except ValueError:
        pass
    return " ".join(text.split())[:_SHOWN]
