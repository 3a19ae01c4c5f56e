"""Requests shared by the integration tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def greedy(prompt_ids: Sequence[int], tokens: int, **params: Any) -> dict[str, Any]:
    """A `/generate` request at T=0."""
    return {
        "input_ids": list(prompt_ids),
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, **params},
    }


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
