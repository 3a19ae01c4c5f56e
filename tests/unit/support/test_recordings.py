"""Recorded answers and the oracle that drafts them: nothing depends on who asks first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import oracle, reference
from tests.support.reference import Reference

PROMPT = [7, 8, 9]


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "fingerprint", lambda _: "one-machine")


class Plain:
    """A server that counts up from the last token of the prompt."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def generate(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        last, count = request["input_ids"][-1], request["sampling_params"]["max_new_tokens"]
        return {"output_ids": list(range(last + 1, last + 1 + count))}


def request(prompt: list[int] = PROMPT, tokens: int = 6, **more: Any) -> dict[str, Any]:
    return {
        "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": tokens, **more},
    }


@pytest.fixture
def plain() -> Plain:
    return Plain()


@pytest.fixture
def recorded(plain: Plain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reference:
    made = Reference(lambda: plain, tmp_path, "model")
    monkeypatch.setenv(oracle.VARIABLE, str(made.oracle))
    return made


def drafts(prompt: list[int] = PROMPT, output: tuple[int, ...] = (10,)) -> list[set[int]]:
    """The oracle's candidates by depth after some output."""
    tokens = torch.zeros(4, 8, dtype=torch.int64)
    oracle.plan(tokens, torch.zeros(4, 8), prompt, list(output))
    return [set(row) for row in tokens.tolist()]


def test_an_answer_recorded_after_the_oracle_was_asked_is_drafted(recorded: Reference) -> None:
    assert not any(token in row for token, row in zip((11, 12), drafts(), strict=False))
    recorded.answers([request()])
    assert 11 in drafts()[0]


def test_a_longer_answer_replaces_a_shorter_one_and_not_the_other_way(recorded: Reference) -> None:
    recorded.answers([request(tokens=2)])
    assert 12 not in drafts()[1]
    recorded.answers([request(tokens=6)])
    assert 12 in drafts()[1]
    recorded.answers([request(tokens=3)])
    assert 12 in drafts()[1]


def test_bigrams_are_what_was_taught_whatever_else_is_recorded(recorded: Reference) -> None:
    table = recorded.oracle / "bigrams.json"
    drafts()
    recorded.answers([request([50], tokens=9)])
    recorded.teach([request([20], tokens=5)])
    taught = json.loads(table.read_text())
    assert taught == {"21": [22], "22": [23], "23": [24], "24": [25]}
    recorded.answers([request([70], tokens=9)])
    assert json.loads(table.read_text()) == taught
    assert 22 in drafts([1], output=(21,))[0], "read although it was absent at first"


def test_an_answer_is_asked_for_once_per_content(recorded: Reference, plain: Plain) -> None:
    first = recorded.answers([request(), request(tokens=2)])
    folder = recorded.folder.parent
    again = Reference(lambda: pytest.fail("nothing is missing"), folder, "model")
    assert again.answers([request(), request(tokens=2)]) == first
    assert len(plain.asked) == 2
    recorded.answers([request(stop=["x"])])
    assert len(plain.asked) == 3


def test_only_plain_greedy_answers_are_drafted(recorded: Reference) -> None:
    recorded.answers([request(frequency_penalty=0.5), request(temperature=1.0)])
    assert list(recorded.oracle.iterdir()) == []


def test_nothing_is_left_half_written(recorded: Reference) -> None:
    recorded.answers([request(tokens=n) for n in range(1, 20)])
    assert list(recorded.folder.rglob("*.part")) == []
