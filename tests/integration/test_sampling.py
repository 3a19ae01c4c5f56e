"""T>0: tokens come from the target's own distribution; greedy neighbours are untouched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cases import delta, differing, flush_series, greedy, ids
from tests.support.probabilities import Martingale, martingale
from tests.support.prompts import chat_ids, texts
from tests.support.reference import Reference
from tests.support.server import Server

pytestmark = pytest.mark.integration
SetBudget = Callable[[int], None]
LIMIT = 4.0
"""|z| beyond it happens by chance once in 16,000 runs."""


def sampled(count: int, tokens: int, **params: Any) -> list[dict[str, Any]]:
    return [
        greedy(chat_ids(text), tokens, ignore_eos=True)
        | {
            "sampling_params": {"temperature": 1.0, "max_new_tokens": tokens, "ignore_eos": True}
            | params
        }
        for text in texts(count)
    ]


def judge(target: Any, requests: list[dict[str, Any]], answers: list[dict[str, Any]]) -> Martingale:
    runs = zip((r["input_ids"] for r in requests), ids(answers), strict=True)
    result = martingale(target, runs)
    print(
        f"{result.tokens} tokens: z of surprise {result.z_surprise:+.2f}, "
        f"of argmax {result.z_argmax:+.2f}"
    )
    return result


def assert_unbiased(result: Martingale) -> None:
    assert abs(result.z_surprise) < LIMIT
    assert abs(result.z_argmax) < LIMIT


@pytest.mark.parametrize(
    ("prompts", "tokens"), [(16, 24), pytest.param(160, 128, marks=pytest.mark.full)]
)
def test_unbiased_at_temperature_one(
    prompts: int,
    tokens: int,
    target: Any,
    jetspec: Server,
    budget: SetBudget,
) -> None:
    requests = sampled(prompts, tokens)
    budget(16)
    before = flush_series(jetspec)
    answers = jetspec.generate_all(requests, 8)
    after = flush_series(jetspec)
    assert all(len(answer["output_ids"]) == tokens for answer in answers)
    accepted = delta(before, after, "jetspec_accepted_node_budget_count", budget="16")
    assert accepted > 0.05 * prompts * tokens, "drafts were never accepted: nothing was tested"
    assert_unbiased(judge(target, requests, answers))


@pytest.mark.full
def test_plain_decoding_is_unbiased_too(target: Any, reference: Reference) -> None:
    """Control: the statistic has no bias of its own."""
    requests = sampled(160, 128)
    assert_unbiased(judge(target, requests, reference.answers(requests)))


def test_the_statistic_sees_greedy_decoding(target: Any, reference: Reference) -> None:
    """Control: argmax tokens at T=1 fail it by far."""
    requests = [greedy(chat_ids(text), 48) for text in texts(8)]
    result = judge(target, requests, reference.answers(requests))
    assert result.z_surprise > 2 * LIMIT
    assert result.z_argmax > 2 * LIMIT


def test_mixed_batches(jetspec: Server, budget: SetBudget, reference: Reference) -> None:
    """Greedy requests between sampled ones give plain decoding's tokens."""
    quiet = [greedy(chat_ids(text), 24) for text in texts(4)]
    loud = [
        {**greedy(chat_ids(text), 24), "sampling_params": {"max_new_tokens": 24, **params}}
        for text, params in zip(
            texts(4),
            (
                {"temperature": 1.0},
                {"temperature": 0.7, "top_p": 0.9},
                {"temperature": 1.3, "top_k": 20},
                {"temperature": 1.0, "min_p": 0.1},
            ),
            strict=True,
        )
    ]
    budget(16)
    mixed = [request for pair in zip(quiet, loud, strict=True) for request in pair]
    answers = jetspec.generate_all(mixed, 8)
    assert differing(ids(reference.answers(quiet)), ids(answers[::2])) == []
    assert all(answer["output_ids"] for answer in answers[1::2])


def test_top_k_one_is_greedy(jetspec: Server, budget: SetBudget, reference: Reference) -> None:
    prompt = chat_ids(texts(1)[0])
    request = greedy(prompt, 40)
    [plain] = reference.answers([request])
    params = {"temperature": 1.0, "top_k": 1, "max_new_tokens": 40}
    answer = jetspec.generate({"input_ids": prompt, "sampling_params": params})
    assert answer["output_ids"] == plain["output_ids"]


def test_truncated_distributions_stay_inside(
    target: Any, jetspec: Server, budget: SetBudget
) -> None:
    """top_k=3 never leaves the target's three best tokens, at any node."""
    import torch

    budget(16)
    requests = sampled(4, 32)
    for request in requests:
        request["sampling_params"]["top_k"] = 3
    for request, answer in zip(requests, jetspec.generate_all(requests, 4), strict=True):
        sequence = torch.tensor([[*request["input_ids"], *answer["output_ids"]]])
        with torch.inference_mode():
            logits = target(input_ids=sequence, use_cache=False, logits_to_keep=33).logits[0, :-1]
        best = logits.topk(3, dim=-1).values[:, -1]
        own = logits.gather(-1, torch.tensor(answer["output_ids"])[:, None])[:, 0]
        assert bool((own >= best - 1e-3).all())
