"""T=0: JETSPEC's tokens are plain decoding's, whatever the budget, batch, cache or pool does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest

from tests.integration.cases import Named, delta, differing, flush_series, greedy, ids
from tests.integration.conftest import CHUNK, CONTEXT
from tests.support.prompts import SYSTEM, chat_ids, texts
from tests.support.reference import Reference
from tests.support.server import Server

pytestmark = pytest.mark.integration
SetBudget = Callable[[int], None]
TOKENS = 48


@pytest.fixture(scope="module")
def requests() -> list[dict[str, Any]]:
    return [greedy(chat_ids(text), TOKENS) for text in texts(8)]


@pytest.fixture(scope="module")
def expected(reference: Reference, requests: list[dict[str, Any]]) -> list[list[int]]:
    return ids(reference.answers(requests))


@contextmanager
def changing_budget(server: Server, budgets: tuple[int, ...]) -> Iterator[list[bool]]:
    """Change the budget without pause while the body runs; yields the server's answers."""
    stop = threading.Event()
    answers: list[bool] = []

    def change() -> None:
        for budget in cycle(budgets):
            if stop.wait(0.3):
                return
            answers.append(server.set_state({"jetspec_tree_budget": budget}))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("tree", "batch", "count"), [(1, 4, 4), (2, 4, 4), (16, 1, 2), (16, 8, 8), (64, 4, 4)]
)
def test_tokens_equal_plain_decoding(
    tree: int,
    batch: int,
    count: int,
    jetspec: Server,
    budget: SetBudget,
    requests: list[dict[str, Any]],
    expected: list[list[int]],
) -> None:
    jetspec.flush()
    budget(tree)
    found = ids(jetspec.generate_all(requests[:count], batch))
    assert differing(expected[:count], found) == []


@pytest.mark.parametrize(("tree", "batch"), [(1, 1), (16, 2), (64, 4)])
def test_logprobs_equal_plain_decoding_bit_for_bit(
    tree: int,
    batch: int,
    jetspec: Server,
    budget: SetBudget,
    reference: Reference,
    requests: list[dict[str, Any]],
) -> None:
    """Every kernel of the host gives a row the same bits in any company; so tokens must be equal."""
    logprobs = {"return_logprob": True, "top_logprobs_num": 4}
    asked = [greedy(request["input_ids"], 24) | logprobs for request in requests[: max(2, batch)]]
    plain_answers = reference.answers(asked)
    jetspec.flush()
    budget(tree)
    found = jetspec.generate_all(asked, batch)
    for plain, own in zip(plain_answers, found, strict=True):
        for name in ("output_token_logprobs", "output_top_logprobs"):
            assert own["meta_info"][name] == plain["meta_info"][name]


def test_long_and_scattered_accepts_happen(
    jetspec: Server,
    budget: SetBudget,
    requests: list[dict[str, Any]],
    expected: list[list[int]],
) -> None:
    """Without them the equality above would prove little."""
    budget(16)
    before = flush_series(jetspec)
    answers = jetspec.generate_all(requests, 4)
    after = flush_series(jetspec)
    assert differing(expected, ids(answers)) == []
    rounds = delta(before, after, "jetspec_request_rounds_total", budget="16")
    tokens = delta(before, after, "jetspec_tokens_total", budget="16")
    assert tokens / rounds > 2, "the oracle's tokens are not accepted"
    # Ranks of 4 and above cannot be a chain's first nodes at these scores: siblings and moves.
    accepted = delta(before, after, "jetspec_accepted_node_budget_count", budget="16")
    low = delta(before, after, "jetspec_accepted_node_budget_bucket", budget="16", le="8.0")
    assert accepted - low > 10


def test_budget_changes_under_load(
    jetspec: Server,
    budget: SetBudget,
    requests: list[dict[str, Any]],
    expected: list[list[int]],
) -> None:
    budget(16)
    with changing_budget(jetspec, (64, 2, 1, 16, 5, 33)) as answers:
        found = ids(jetspec.generate_all(requests, 4))
    assert differing(expected, found) == []
    assert len(answers) >= 3
    assert all(answers)


def test_prefix_cache_hits(jetspec: Server, budget: SetBudget, reference: Reference) -> None:
    """Shared prefixes, repeats and second turns read KV that trees wrote."""
    first = [greedy(chat_ids(text, SYSTEM), 24) for text in texts(4)]
    plain_first = reference.answers(first)
    end = chat_ids("And what would change if the number were doubled?")
    second = [
        greedy([*request["input_ids"], *answer["output_ids"], *end], 24)
        for request, answer in zip(first, plain_first, strict=True)
    ]
    plain_second = reference.answers(second)
    jetspec.flush()
    budget(16)
    for requests, plain in ((first, plain_first), (first, plain_first), (second, plain_second)):
        answers = jetspec.generate_all(requests, 4)
        assert differing(ids(plain), ids(answers)) == []
    # The second turn's prefix reaches into the first turn's answer.
    for request, answer in zip(first, answers, strict=True):
        assert answer["meta_info"]["cached_tokens"] > len(request["input_ids"])


def test_retraction_and_chunked_prefill(crowd: list[Named], reference: Reference) -> None:
    """Requests are retracted and resumed; the longest prompts take two chunks."""
    asked = [{k: v for k, v in request.items() if k != "rid"} for request, _ in crowd]
    answers = [answer for _, answer in crowd]
    assert max(len(request["input_ids"]) for request in asked) > CHUNK
    assert differing(ids(reference.answers(asked)), ids(answers)) == []
    assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0


def test_up_to_the_context_limit(jetspec: Server, budget: SetBudget, reference: Reference) -> None:
    """The last rounds' windows reach past the last position a request may have."""
    prompt = chat_ids(texts(1)[0], SYSTEM * 10)[-440:]
    request = greedy(prompt, CONTEXT - len(prompt) - 2, ignore_eos=True)
    [plain] = reference.answers([request])
    budget(64)
    answer = jetspec.generate(request)
    assert differing(ids([plain]), ids([answer])) == []
    assert answer["meta_info"]["finish_reason"]["type"] == "length"
