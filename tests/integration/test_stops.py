"""A request ends at the token, with the reason and the text of plain decoding.

Random stop sets are cut from the model's own answers, many of them pairs that are complete in one
round; the oracle's drafts make rounds long. Every answer is compared with the plain server's.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.integration.cases import greedy
from tests.support.prompts import chat_ids, texts, tokenizer
from tests.support.reference import Reference
from tests.support.server import Server

pytestmark = pytest.mark.integration
SetBudget = Callable[[int], None]
Request = dict[str, Any]
TOKENS = 48
"""Plain SGLang sends text on every 50th token even if a stop string has begun there."""
PROMPTS = 8
PATTERNS = (r"\d+\.?", r"[.!?]\s", r"\b[A-Z]\w+ \w+", r"\n\n?", r"(the|of|and)\s+\w$", r"\w{7,}$")
COMPARED = (
    "finish_reason",
    "completion_tokens",
    "output_token_logprobs",
    "output_top_logprobs",
)


@pytest.fixture(scope="module")
def free(reference: Reference) -> list[tuple[list[int], dict[str, Any]]]:
    """Prompts and what the model says to them when nothing stops it."""
    prompts = [chat_ids(text) for text in texts(PROMPTS)]
    answers = reference.answers([greedy(prompt, TOKENS, ignore_eos=True) for prompt in prompts])
    return list(zip(prompts, answers, strict=True))


def stop_set(rng: random.Random, answer: dict[str, Any]) -> dict[str, Any]:
    """Sampling parameters that end somewhere in this answer, most of them in several ways."""
    text, ids = answer["text"], answer["output_ids"]
    kinds = rng.choices(["pair", "strings", "token", "regex", "mixed"], [4, 2, 1, 2, 5])[0]
    params: dict[str, Any] = {"max_new_tokens": rng.choice([TOKENS, TOKENS, rng.randint(1, 40)])}
    if kinds in ("strings", "mixed"):
        params["stop"] = [piece(rng, text) for _ in range(rng.randint(1, 3))]
    if kinds == "pair":
        params["stop"] = pair(rng, text)
    if kinds in ("token", "mixed"):
        params["stop_token_ids"] = rng.sample(ids[2:], rng.randint(1, 2))
    if kinds in ("regex", "mixed"):
        own = re.escape(piece(rng, text)) + rng.choice(["", "$"])
        params["stop_regex"] = [rng.choice([own, rng.choice(PATTERNS)])]
    if rng.random() < 0.3:
        params["min_new_tokens"] = rng.randint(1, params["max_new_tokens"])
    params["no_stop_trim"] = rng.random() < 0.4
    params["ignore_eos"] = rng.random() < 0.2
    return params


def piece(rng: random.Random, text: str) -> str:
    start = rng.randrange(max(len(text) - 12, 1))
    return text[start : start + rng.randint(1, 12)]


def pair(rng: random.Random, text: str) -> list[str]:
    """Two strings that end a few characters apart, the later one listed first."""
    end = rng.randint(8, max(len(text) - 12, 9))
    later = end + rng.randint(1, 10)
    return [text[later - rng.randint(2, 8) : later], text[end - rng.randint(1, 6) : end]]


def random_requests(
    seed: int, count: int, free: list[tuple[list[int], dict[str, Any]]]
) -> list[Request]:
    rng = random.Random(seed)
    requests = []
    for i in range(count):
        prompt, answer = free[i % len(free)]
        params = stop_set(rng, answer)
        if i % 8 == 3:
            params["n"] = 2
        request = greedy(prompt, params.pop("max_new_tokens"), **params)
        if i % 3 == 0:
            request |= {"return_logprob": True, "top_logprobs_num": 2}
        requests.append(request)
    return requests


def streamed(server: Server, request: Request) -> Any:
    """The last event of each choice; no event may hold text that the answer does not begin with."""
    last: dict[int, Any] = {}
    seen: dict[int, list[str]] = {}
    with server.client.stream("POST", "/generate", json={**request, "stream": True}) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                event = json.loads(line[6:])
                last[event.get("index", 0)] = event
                seen.setdefault(event.get("index", 0), []).append(event["text"])
    for index, event in last.items():
        assert all(event["text"].startswith(text) for text in seen[index]), request
    choices = [last[index] for index in sorted(last)]
    return choices if "n" in request["sampling_params"] else choices[0]


def compare(requests: list[Request], expected: list[Any], found: list[Any]) -> None:
    for request, theirs, ours in zip(requests, expected, found, strict=True):
        if not isinstance(theirs, list):
            theirs, ours = [theirs], [ours]
        for plain, own in zip(theirs, ours, strict=True):
            assert own["output_ids"] == plain["output_ids"], request["sampling_params"]
            assert own["text"] == plain["text"], request["sampling_params"]
            for name in COMPARED:
                assert own["meta_info"].get(name) == plain["meta_info"].get(name), (name, request)


def check(
    server: Server,
    reference: Reference,
    requests: list[Request],
    budgets: Sequence[int],
    every: bool = False,
) -> None:
    """Every other answer streamed, against plain decoding's; then nothing is left in the pool.

    A request is asked at one of the budgets, with `every` at all of them.
    """
    expected = reference.answers(requests)
    for i, budget in enumerate(budgets):
        server.set_budget(budget)
        server.flush()
        mine = [k for k in range(len(requests)) if every or k % len(budgets) == i]

        def ask(k: int, turn: int = i) -> Any:
            whole = (k // len(budgets) + turn) % 2
            return server.generate(requests[k]) if whole else streamed(server, requests[k])

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(ask, mine))
        compare([requests[k] for k in mine], [expected[k] for k in mine], found)
    server.flush()
    assert server.used_tokens() == 0


def test_random_stop_sets(
    jetspec: Server, reference: Reference, budget: SetBudget, free: list[Any]
) -> None:
    requests = random_requests(11, 16, free)
    plain = reference.answers(requests)
    reasons = [a["meta_info"]["finish_reason"] for a in plain if isinstance(a, dict)]
    assert {type(reason.get("matched")) for reason in reasons} >= {str, int}, "too few kinds"
    check(jetspec, reference, requests, (2, 8, 64))


def test_grammars_end_with_stops(
    jetspec: Server, reference: Reference, budget: SetBudget, free: list[Any]
) -> None:
    pattern = r"(Yes|No), [a-z]{2,8}( [a-z]{2,8}){3}\."
    requests = [
        greedy(free[0][0], 40, regex=pattern, **stops)
        for stops in (
            {},
            {"ignore_eos": True},
            {"stop": [" "]},
            {"stop_regex": [r"[a-z]{3} "], "no_stop_trim": True},
            {"stop_token_ids": [tokenizer().encode(",")[0]]},
            {"max_new_tokens": 5},
        )
    ]
    check(jetspec, reference, requests, (16,))


def test_the_cache_after_a_stop_inside_a_round(
    jetspec: Server, reference: Reference, budget: SetBudget, free: list[Any]
) -> None:
    """A second turn reads the KV of the first up to its stop, and is plain decoding's."""
    first = [
        greedy(prompt, TOKENS, stop_token_ids=[answer["output_ids"][9]])
        for prompt, answer in free[:4]
    ]
    cut = reference.answers(first)
    second = [
        greedy([*request["input_ids"], *answer["output_ids"], *chat_ids("Go on.")], 16)
        for request, answer in zip(first, cut, strict=True)
    ]
    plain = reference.answers(second)
    jetspec.flush()
    budget(64)
    compare(first, cut, jetspec.generate_all(first, 4))
    answers = jetspec.generate_all(second, 4)
    compare(second, plain, answers)
    for request, answer, own in zip(first, cut, answers, strict=True):
        held = len(request["input_ids"]) + len(answer["output_ids"])
        assert own["meta_info"]["cached_tokens"] >= held - 1
    jetspec.flush()
    assert jetspec.used_tokens() == 0


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("seed", range(8))
def test_many_random_stop_sets(
    seed: int, jetspec: Server, reference: Reference, budget: SetBudget, free: list[Any]
) -> None:
    check(jetspec, reference, random_requests(seed, 256, free), (2, 4, 8, 16, 32, 64), every=True)
