"""Requests and readings shared by the integration tests.

The servers live for the whole run: whatever they count is read as a difference.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.prompts import chat_ids, texts
from tests.support.server import Server, total

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def greedy(prompt_ids: Sequence[int], tokens: int, **params: Any) -> dict[str, Any]:
    """A `/generate` request at T=0."""
    return {
        "input_ids": list(prompt_ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, **params},
    }


Named = tuple[dict[str, Any], dict[str, Any]]
"""A request with its id, and its answer."""


def send(server: Server, requests: Iterable[dict[str, Any]], concurrency: int) -> list[Named]:
    """Requests under ids of their own, by which the draft trace names them."""
    named = [{**request, "rid": uuid.uuid4().hex} for request in requests]
    return list(zip(named, server.generate_all(named, concurrency), strict=True))


def ids(answers: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [answer["output_ids"] for answer in answers]


def differing(
    expected: Sequence[Sequence[int]], found: Sequence[Sequence[int]]
) -> list[tuple[int, int]]:
    """(request, first differing position) of every answer that is not token-identical."""
    assert len(expected) == len(found)
    different = []
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        if list(a) != list(b):
            place = next(
                (j for j, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                min(len(a), len(b)),
            )
            different.append((i, place))
    return different


def flush_series(server: Server) -> Series:
    """The series after everything counted so far is written, with one more round of one request."""
    time.sleep(0.6)
    server.generate(greedy(chat_ids(texts(1)[0]), 2, ignore_eos=True))
    return server.metrics()


def delta(before: Series, after: Series, name: str, **labels: str) -> float:
    return total(after, name, **labels) - total(before, name, **labels)
