"""A little chat traffic, so that a newcomer sees numbers: `python -m deploy.stack.demo URL`.

Contract: waits for the server, then keeps 1, 4, 8, 2 requests in flight, each for some seconds,
over and over until it is stopped. Every other request streams. It measures nothing. To measure, use
`jetspec bench` and the load tests. I/O: HTTP to the server.
"""

import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.client.supervise import is_ready
from jetspec_sglang.evaluation.datasets import load_prompts

CONCURRENCY = (1, 4, 8, 2)
STAGE_S = 15.0
MAX_TOKENS = 64
KEY = "JETSPEC_API_KEY"
_TIMEOUT_S = 300.0


def companion(url: str, folder: Path) -> dict[str, Any]:
    """The demo as `supervise` runs it."""
    return {
        "name": "demo load",
        "command": [sys.executable, "-m", "deploy.stack.demo", url],
        "log": str(folder / "demo.log"),
    }


def environment(flags: Flags) -> dict[str, str]:
    """The variable that holds the server's key, where it wants one."""
    key = flags.value("--api-key")
    return {KEY: key} if key else {}


def stage(
    client: httpx.Client, prompts: Sequence[str], concurrency: int, seconds: float, **more: Any
) -> list[int]:
    """Keep `concurrency` requests in flight for `seconds`; HTTP statuses of all that ended.

    Every other request streams; `more` goes into every body.
    """
    deadline = time.monotonic() + seconds
    numbers = itertools.count()

    def loop(_: int) -> Iterator[int]:
        while time.monotonic() < deadline:
            number = next(numbers)
            yield ask(client, prompts[number % len(prompts)], stream=number % 2 == 0, **more)

    with ThreadPoolExecutor(concurrency) as workers:
        return [
            status
            for statuses in workers.map(lambda i: list(loop(i)), range(concurrency))
            for status in statuses
        ]


def ask(client: httpx.Client, prompt: str, *, stream: bool, **more: Any) -> int:
    """One chat request, read to its end; its HTTP status."""
    body: Mapping[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": MAX_TOKENS,
        "stream": stream,
        **more,
    }
    return client.post("/v1/chat/completions", json=body).status_code


def connect(url: str, key: str | None, most: int = max(CONCURRENCY)) -> httpx.Client:
    """A client for `stage` with up to `most` requests in flight. It does not check certificates."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=0)
    return httpx.Client(
        base_url=url, headers=headers, timeout=_TIMEOUT_S, limits=limits, verify=False
    )


def main(url: str) -> None:
    prompts = load_prompts("chat")
    while not is_ready(url):
        time.sleep(1)
    with connect(url, os.environ.get(KEY)) as client:
        for concurrency in itertools.cycle(CONCURRENCY):
            try:
                statuses = stage(client, prompts, concurrency, STAGE_S)
            except httpx.HTTPError as error:
                print(f"{type(error).__name__}: {error}", flush=True)
                time.sleep(1)
                continue
            failed = [status for status in statuses if status != 200]
            print(
                f"{concurrency} at a time: {len(statuses)} answers, {len(failed)} failed",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1])
