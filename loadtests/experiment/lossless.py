"""Checks that answers under load equal plain decoding: they are asked again, one at a time, at T=0.

Contract: `sample` is pure. An answer that the client cut off must be the beginning of the plain
one. I/O: HTTP.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.server import Server
from loadtests.records import Record

TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Difference:
    """An answer that is not the plain one."""

    index: int
    prompt: str
    answer: str
    plain: str


def sample(records: Sequence[Record], count: int, seed: int) -> list[Record]:
    """Answered and cut off requests with text, in the order they were due."""
    usable = [one for one in records if one.status in ("ok", "aborted") and one.text]
    chosen = random.Random(f"sample {seed}").sample(usable, min(count, len(usable)))
    return sorted(chosen, key=lambda one: one.due)


def differences(server: Server, records: Sequence[Record], max_tokens: int) -> list[Difference]:
    """Ask the plain server for each and compare."""
    found = []
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        for record in records:
            plain = _ask(client, record.prompt, max_tokens)
            same = plain == record.text if record.ok else plain.startswith(record.text)
            if not same:
                found.append(Difference(record.index, record.prompt, record.text, plain))
    return found


def _ask(client: httpx.Client, prompt: str, max_tokens: int) -> str:
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0.0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
    }
    try:
        answer = client.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        return str(answer.json()["choices"][0]["message"]["content"] or "")
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise CommandError(f"{client.base_url}: {type(error).__name__}: {error}") from None
