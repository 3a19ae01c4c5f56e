"""The target's answers, written through a running SGLang server, into resumable shards.

Contract: `collect_answers` and `write_prompts` are the only I/O: HTTP to the server's /generate
with token ids, and files in the output folder. A kill loses at most one shard of answers. A second
call asks only for missing answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from jetspec_sglang.training.prompts import ChatTemplate, HeldOut, count_words, prompt_hash
from jetspec_sglang.training.responses import load, pack, save, shards

MIN_WORDS = 3
"""The fewest words of a message that the target wrote itself."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling of answers: temperature 0 is greedy."""

    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def request(self, ids: Sequence[int], stops: Sequence[int], number: int) -> dict[str, Any]:
        """Body of one /generate call. Sampled calls get a seed of their own."""
        sampling: dict[str, Any] = {
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "stop_token_ids": list(stops),
        }
        if self.temperature > 0:
            sampling |= {"top_p": self.top_p, "sampling_seed": self.seed + number}
        return {"input_ids": list(ids), "sampling_params": sampling}


class Generator:
    """/generate with bounded concurrency and a few retries."""

    def __init__(self, url: str, headers: dict[str, str], concurrency: int) -> None:
        self.url = url.rstrip("/")
        self.headers = headers
        self.concurrency = concurrency

    async def results(
        self, requests: Sequence[dict[str, Any]]
    ) -> AsyncIterator[tuple[int, list[int]]]:
        """(request number, output ids) as they finish, at most `concurrency` at a time."""
        limit = asyncio.Semaphore(self.concurrency)
        async with httpx.AsyncClient(headers=self.headers, timeout=600.0) as client:

            async def one(number: int) -> tuple[int, list[int]]:
                async with limit:
                    return number, await self._generate(client, requests[number])

            tasks = [asyncio.create_task(one(number)) for number in range(len(requests))]
            try:
                for finished in asyncio.as_completed(tasks):
                    yield await finished
            finally:
                for task in tasks:
                    task.cancel()

    async def _generate(self, client: httpx.AsyncClient, body: dict[str, Any]) -> list[int]:
        for attempt in range(4):
            try:
                answer = await client.post(f"{self.url}/generate", json=body)
                if answer.status_code < 500:
                    break
            except httpx.TransportError as error:
                if attempt == 3:
                    raise ConnectionError(f"{self.url}: {error!r}") from error
            await asyncio.sleep(2.0**attempt)
        if answer.status_code != 200:
            raise ConnectionError(f"{self.url}: HTTP {answer.status_code}: {answer.text[:300]}")
        return [int(token) for token in answer.json()["output_ids"]]


async def write_prompts(
    generator: Generator,
    template: ChatTemplate,
    file: Path,
    count: int,
    held_out: HeldOut,
    *,
    temperature: float = 1.0,
    seed: int = 0,
    max_tokens: int = 128,
    progress: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """Let the target write `count` user messages itself, from the start of the user's turn.

    `file` keeps them, one JSON object a line. Kept are finished messages of `MIN_WORDS` or more
    that are neither held out nor there already.
    """
    messages = [json.loads(line)["prompt"] for line in _lines(file)]
    seen = {prompt_hash(message) for message in messages}
    tried = 0
    sampling = Sampling(max_tokens, temperature, seed=seed + 1_000_003 * len(messages))
    progress(len(messages))
    while len(messages) < count:
        batch = [
            sampling.request(template.before, template.stops, tried + number)
            for number in range(min(4 * generator.concurrency, 2 * (count - len(messages))))
        ]
        tried += len(batch)
        async for _, ids in generator.results(batch):
            message = _finished_message(template, ids)
            known = message in held_out or prompt_hash(message) in seen
            if count_words(message) < MIN_WORDS or known or len(messages) >= count:
                continue
            seen.add(prompt_hash(message))
            messages.append(message)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({"prompt": message}) + "\n")
            progress(1)
        if tried > 50 * count:
            raise ValueError(f"the target wrote {len(messages)} usable prompts in {tried} tries")
    return messages[:count]


def _finished_message(template: ChatTemplate, ids: Sequence[int]) -> str:
    """The text of a turn that was ended; empty for one that ran on."""
    ended = [i for i, token in enumerate(ids) if token in template.stops]
    return template.tokenizer.decode(ids[: ended[0]]).strip() if ended else ""


async def collect_answers(
    generator: Generator,
    template: ChatTemplate,
    messages: Sequence[str],
    source: str,
    folder: Path,
    sampling: Sampling,
    *,
    shard_size: int = 128,
    pause_file: Path | None = None,
    progress: Callable[[int, int], None] = lambda answers, tokens: None,
) -> None:
    """Answer `messages` into `folder`/<source>-00000.npz and so on, skipping those answered.

    Answers keep the id that ended them. `progress` is told answers and tokens as they arrive.
    """
    done = _answered(folder, source)
    progress(len(done), 0)
    prompts = [template.render(message) for message in messages]
    todo = [number for number, ids in enumerate(prompts) if tuple(ids) not in done]
    number_of_shards = len(list(folder.glob(f"{source}-*.npz")))
    for start in range(0, len(todo), shard_size):
        while pause_file and pause_file.exists():
            await asyncio.sleep(1)
        part = todo[start : start + shard_size]
        requests = [sampling.request(prompts[n], template.stops, n) for n in part]
        answers: dict[int, list[int]] = {}
        async for place, ids in generator.results(requests):
            answers[place] = _cut(ids, template.stops)
            progress(1, len(answers[place]))
        kept = [place for place in sorted(answers) if answers[place]]
        responses = pack(
            [prompts[part[place]] + answers[place] for place in kept],
            [len(prompts[part[place]]) for place in kept],
            [source] * len(kept),
        )
        save(responses, folder / f"{source}-{number_of_shards:05d}.npz")
        number_of_shards += 1


def _cut(ids: list[int], stops: Sequence[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in stops:
            return ids[: place + 1]
    return ids


def _answered(folder: Path, source: str) -> set[tuple[int, ...]]:
    if not any(folder.glob(f"{source}-*.npz")):
        return set()
    parts = [load(file) for file in shards(folder) if file.name.startswith(f"{source}-")]
    return {tuple(part.prompt(i).tolist()) for part in parts for i in range(len(part))}


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []
