"""A closed loop of chat requests against one server, and its results.

I/O: HTTP. Answers are not streamed, so that chunks cost nothing. With few cores, this cost would
affect plain decoding most, because it has the most chunks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

from jetspec_sglang.budget import KEY
from jetspec_sglang.client.counters import Counters
from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.server import Server
from jetspec_sglang.metrics import FLUSH_SECONDS

TIMEOUT_S = 1800.0
WARM_UP_TOKENS = 8
_FLUSH_TRIES, _FLUSH_WAIT_S = 50, 0.1


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One load: wall seconds from the first request to the last answer, tokens answered.

    request_rounds: rounds summed over requests; drafts: draft tokens accepted in them; both 0
    without speculation.
    """

    seconds: float
    tokens: int
    request_rounds: int = 0
    drafts: int = 0

    @property
    def speed(self) -> float:
        """Tokens per second, prefill included."""
        return self.tokens / self.seconds

    @property
    def tau(self) -> float:
        """Tokens per request per round, bonus included; 1 without speculation."""
        return 1.0 + self.drafts / self.request_rounds if self.request_rounds else 1.0


def run_load(server: Server, prompts: Sequence[str], batch: int, max_tokens: int) -> LoadResult:
    """Send every prompt at T=0, `batch` at a time, each for exactly `max_tokens` tokens."""
    limits = httpx.Limits(max_connections=batch, max_keepalive_connections=batch)
    with (
        httpx.Client(base_url=server.url, timeout=TIMEOUT_S, limits=limits) as client,
        ThreadPoolExecutor(batch) as workers,
    ):
        started = time.perf_counter()
        answers = list(workers.map(lambda prompt: _ask(client, prompt, max_tokens), prompts))
        seconds = time.perf_counter() - started
    return summed(seconds, answers)


def summed(seconds: float, answers: Sequence[dict[str, Any]]) -> LoadResult:
    """A Load from the bodies of its chat answers."""
    details = [_speculation(answer) for answer in answers]
    return LoadResult(
        seconds,
        sum(answer["usage"]["completion_tokens"] for answer in answers),
        sum(detail.get("spec_verify_ct", 0) for detail in details),
        sum(detail.get("spec_num_correct_drafts", 0) for detail in details),
    )


def warm_up(server: Server, prompts: Sequence[str], batch: int) -> None:
    """Run `batch` concurrent short requests and ignore their results."""
    repeated = [prompts[i % len(prompts)] for i in range(batch)]
    run_load(server, repeated, batch, WARM_UP_TOKENS)
    flush_cache(server)


def set_budget(server: Server, budget: int) -> None:
    """Change the tree budget. CommandError where it is refused."""
    if not all(server.set_internal_state({KEY: budget})):
        reason = server.jetspec_states()[0]["last_refusal"]
        raise CommandError(f"{server.url} refused budget {budget}: {reason}")


def flush_cache(server: Server) -> None:
    """Empty the prefix cache, waiting for requests that are just ending."""
    for _ in range(_FLUSH_TRIES):
        if _http(server, "POST", "/flush_cache", accept=(200, 400)).status_code == 200:
            return
        time.sleep(_FLUSH_WAIT_S)
    raise CommandError(
        f"{server.url}/flush_cache: refused for {_FLUSH_TRIES * _FLUSH_WAIT_S:.0f} s"
    )


def read_counters(server: Server) -> Counters:
    """The engine's counters, including every round so far.

    The engine writes them at the end of a round, at most every `FLUSH_SECONDS`; a short request
    after that time makes it write (and adds one round of its own).
    """
    time.sleep(FLUSH_SECONDS)
    run_load(server, ["."], 1, 2)
    return Counters.parse(_http(server, "GET", "/metrics").text)


def _ask(client: httpx.Client, prompt: str, max_tokens: int) -> dict[str, Any]:
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0.0,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "return_spec_tokens_details": True,
    }
    try:
        response = client.post("/v1/chat/completions", json=body)
    except httpx.HTTPError as error:
        raise CommandError(f"{client.base_url}: {type(error).__name__}: {error}") from None
    if response.status_code != 200:
        raise CommandError(f"{response.url}: {response.status_code} {response.text[:200]}")
    answer: dict[str, Any] = response.json()
    return answer


def _speculation(answer: dict[str, Any]) -> dict[str, Any]:
    found = (answer.get("sglext") or {}).get("spec_tokens_details") or {}
    return found[0] if isinstance(found, list) else found


def _http(
    server: Server, method: str, path: str, accept: tuple[int, ...] = (200,)
) -> httpx.Response:
    try:
        response = httpx.request(method, f"{server.url}{path}", timeout=30.0)
    except httpx.HTTPError as error:
        raise CommandError(f"{server.url}{path}: {type(error).__name__}: {error}") from None
    if response.status_code not in accept:
        raise CommandError(f"{server.url}{path}: {response.status_code} {response.text[:200]}")
    return response
