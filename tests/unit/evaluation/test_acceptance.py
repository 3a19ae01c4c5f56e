"""Replayed rounds against a decoder that really steps, on random drafts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspec_sglang.evaluation.acceptance import (
    END,
    Rounds,
    continuations,
    path_ranks,
    replay,
    tau_difference,
)
from jetspec_sglang.tree import RULES, build_tree


def drafts(rows, depths, width, seed):
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(rows, depths, 6, generator=generator).argsort(dim=-1)
    logprobs = torch.randn(rows, depths, 6, generator=generator).log_softmax(-1)
    return order[..., :width].contiguous(), logprobs.sort(dim=-1, descending=True).values[
        ..., :width
    ].contiguous()


def walk(tree, row, follows):
    """Accepted nodes, by following children one at a time."""
    at, accepted = 0, 0
    for token in follows:
        children = [
            rank
            for rank in range(1, int(tree.sizes[row]))
            if int(tree.parents[row, rank]) == at and int(tree.tokens[row, rank]) == token
        ]
        if not children:
            break
        at, accepted = children[0], accepted + 1
    return accepted


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(2, 12),
    budget=st.integers(1, 12),
    rule=st.sampled_from(RULES),
    seed=st.integers(0, 10_000),
    finished=st.booleans(),
)
def test_replay_equals_stepping(length, budget, rule, seed, finished):
    depths = 3
    ids = torch.from_numpy(np.random.default_rng(seed).integers(0, 6, length + 2))
    anchors = torch.arange(2, len(ids) - 1)
    tokens, logprobs = drafts(len(anchors), depths, 4, seed)
    tree = build_tree(tokens, logprobs, budget, rule)
    follows = continuations(ids, anchors, depths)
    accepted = (path_ranks(tree, follows) < budget).sum(dim=1).numpy()
    got = replay(accepted, depths, finished)

    at, count, rounds = 2, 0, 0
    while at < (len(ids) - 1 if finished else len(ids) - 1 - depths):
        nodes = walk(tree, at - 2, [t for t in follows[at - 2].tolist() if t != END])
        step = min(nodes + 1, len(ids) - 1 - at)
        at, count, rounds = at + step, count + step, rounds + 1
    assert got == Rounds(count, rounds)


def test_best_first_ranks_serve_every_smaller_budget():
    tokens, logprobs = drafts(40, 4, 4, 3)
    follows = tokens[:, :, 1]
    ranks = path_ranks(build_tree(tokens, logprobs, 32), follows)
    for budget in (1, 2, 5, 17):
        small = path_ranks(build_tree(tokens, logprobs, budget), follows)
        assert torch.equal((ranks < budget).sum(1), (small < budget).sum(1))


def test_continuations_end_with_the_answer():
    follows = continuations(torch.tensor([7, 8, 9]), torch.tensor([0, 1, 2]), 2)
    assert follows.tolist() == [[8, 9], [9, END], [END, END]]


def test_rounds_add_up():
    assert (Rounds(6, 2) + Rounds(1, 1)).tau == 7 / 3
    assert np.isnan(Rounds().tau)


def many_answers(seed, ease):
    """Answers of differing ease: `ease` [n] moves the tokens of each."""
    random = np.random.default_rng(seed)
    rounds = random.integers(20, 60, len(ease))
    return [
        Rounds(int(r + random.binomial(r, p)), int(r)) for r, p in zip(rounds, ease, strict=True)
    ]


def test_the_standard_error_is_the_spread_over_redrawn_answers():
    ease = np.random.default_rng(0).uniform(0.2, 0.8, 400)
    answers = many_answers(1, ease)
    random = np.random.default_rng(2)
    redrawn = []
    for _ in range(400):
        chosen = random.integers(0, len(answers), len(answers))
        redrawn.append(sum((answers[i] for i in chosen), Rounds()).tau)
    tau, error = tau_difference(answers)
    assert tau == sum(answers, Rounds()).tau
    assert error == pytest.approx(np.std(redrawn), rel=0.15)


def test_what_the_answers_share_does_not_count_in_a_difference():
    ease = np.random.default_rng(0).uniform(0.2, 0.8, 300)
    one, other = many_answers(1, ease), many_answers(2, ease)
    _, alone = tau_difference(one)
    difference, error = tau_difference(one, other)
    assert difference == sum(one, Rounds()).tau - sum(other, Rounds()).tau
    assert error < alone
    assert tau_difference(one, one) == (0.0, 0.0)
    assert np.isnan(tau_difference(one[:1])[1])
    assert np.isnan(tau_difference([Rounds(), Rounds()])[0])
