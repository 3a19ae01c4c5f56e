import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspec_sglang.tree import RULES, Tree, build_tree
from jetspec_sglang.tree.reference import build_reference
from jetspec_sglang.tree.tensors import build_tensors
from tests.unit.tree.lattices import budgets, cut, lattices

FIELDS = ("tokens", "parents", "depths", "scores", "sizes")
rules = st.sampled_from(RULES)


def assert_same(left: Tree, right: Tree) -> None:
    for field in FIELDS:
        a, b = getattr(left, field), getattr(right, field)
        assert a.dtype == b.dtype, field
        assert torch.equal(a, b), f"{field}: {a} != {b}"


@settings(max_examples=200, deadline=None)
@given(lattices(), budgets, rules)
def test_every_builder_equals_the_reference(lattice, budget, rule):
    expected = build_reference(*lattice, budget, rule)
    assert_same(build_tensors(*lattice, budget, rule), expected)
    assert_same(build_tree(*lattice, budget, rule), expected)


@settings(max_examples=80, deadline=None)
@given(lattices(), budgets, rules)
def test_a_tree_is_well_formed(lattice, budget, rule):
    tokens, logprobs = lattice
    tree = build_tree(tokens, logprobs, budget, rule)
    bs, depth_limit, width = tokens.shape
    assert tree.tokens.shape == (bs, budget)
    for i in range(bs):
        size = int(tree.sizes[i])
        assert 1 <= size <= budget
        assert (tree.tokens[i, 0], tree.parents[i, 0], tree.depths[i, 0]) == (0, -1, 0)
        assert tree.scores[i, 0] == 0
        children: dict[int, list[int]] = {}
        for rank in range(1, size):
            parent, depth = int(tree.parents[i, rank]), int(tree.depths[i, rank])
            assert 0 <= parent < rank
            assert depth == int(tree.depths[i, parent]) + 1 <= depth_limit
            children.setdefault(parent, []).append(rank)
        for parent, ranks in children.items():
            depth = int(tree.depths[i, parent])
            # Siblings appear in the head's own order without a gap, so all are distinct.
            assert len(ranks) <= width
            assert tree.tokens[i, ranks].tolist() == tokens[i, depth, : len(ranks)].tolist()
            for sibling, rank in enumerate(ranks):
                expected = tree.scores[i, parent] + logprobs[i, depth, sibling]
                assert tree.scores[i, rank] == expected > -math.inf
        assert torch.equal(tree.tokens[i, size:], torch.zeros(budget - size).long())
        assert torch.equal(tree.parents[i, size:], torch.full((budget - size,), -1))
        assert torch.equal(tree.depths[i, size:], torch.zeros(budget - size).long())
        assert (tree.scores[i, size:] == -math.inf).all()


@settings(max_examples=80, deadline=None)
@given(lattices(), budgets, rules, st.data())
def test_trees_are_nested(lattice, budget, rule, data):
    smaller = data.draw(st.integers(1, budget))
    whole = build_tree(*lattice, budget, rule)
    assert_same(cut(whole, smaller), build_tree(*lattice, smaller, rule))


@settings(max_examples=100, deadline=None)
@given(lattices(), budgets)
def test_best_first_holds_the_best_nodes(lattice, budget):
    """Against brute force over the whole lattice, without a heap."""
    tokens, logprobs = lattice
    tree = build_tree(tokens, logprobs, budget)
    assert (tree.scores.diff(dim=1).nan_to_num(nan=0) <= 0).all()
    for i in range(len(tokens)):
        level, scores = [torch.zeros(())], [0.0]
        for depth in range(min(3, tokens.shape[1])):
            level = [s + lp for s in level for lp in logprobs[i, depth] if s + lp > -math.inf]
            scores += [float(s) for s in level]
        kept = tree.depths[i, : tree.sizes[i]] <= 3
        got = tree.scores[i, : tree.sizes[i]][kept].tolist()
        assert got == sorted(scores, reverse=True)[: len(got)]
        if tokens.shape[1] <= 3:
            assert tree.sizes[i] == min(budget, len(scores))


@settings(max_examples=50, deadline=None)
@given(lattices(), budgets)
def test_chain_is_the_first_candidate_of_each_depth(lattice, budget):
    tokens, logprobs = lattice
    tree = build_tree(tokens, logprobs, budget, "chain")
    for i in range(len(tokens)):
        firsts = []
        for depth in range(tokens.shape[1] if tokens.shape[2] else 0):
            if logprobs[i, depth, 0] == -math.inf:
                break
            firsts.append(int(tokens[i, depth, 0]))
        size = int(tree.sizes[i])
        assert tree.tokens[i, 1:size].tolist() == firsts[: budget - 1]
        assert tree.parents[i, :size].tolist() == list(range(-1, size - 1))


def test_ties_go_to_depth_then_parent_then_sibling():
    tokens = torch.tensor([[[1, 2], [3, 4]]])
    tree = build_tree(tokens, torch.zeros(1, 2, 2), 7)
    assert tree.tokens.tolist() == [[0, 1, 2, 3, 4, 3, 4]]
    assert tree.parents.tolist() == [[-1, 0, 0, 1, 1, 2, 2]]


def test_accum_logp_adds_all_children_of_each_visited_node():
    tokens = torch.tensor([[[1, 2], [3, 4]]])
    logprobs = torch.tensor([[[-0.1, -5.0], [-0.2, -0.3]]])
    tree = build_tree(tokens, logprobs, 5, "accum_logp")
    assert tree.tokens.tolist() == [[0, 1, 2, 3, 4]]
    assert tree.parents.tolist() == [[-1, 0, 0, 1, 1]]
    assert build_tree(tokens, logprobs, 4).tokens.tolist() == [[0, 1, 3, 4]]


def test_a_logprob_above_zero_counts_as_zero():
    tokens = torch.tensor([[[1], [2]]])
    for build in (build_tree, build_tensors, build_reference):
        tree = build(tokens, torch.tensor([[[1e-7], [-1.0]]]), 3, "best_first")
        assert tree.scores.tolist() == [[0.0, 0.0, -1.0]]


def test_strided_input_and_large_shape():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 15, 64, generator=generator)
    top = logits.log_softmax(-1).topk(16)
    tokens, logprobs = top.indices[:, :, :8], top.values[:, :, :8]
    for rule in RULES:
        assert_same(
            build_tree(tokens, logprobs, 256, rule),
            build_reference(tokens, logprobs, 256, rule),
        )


TOKENS, LOGPROBS = torch.zeros(1, 2, 3, dtype=torch.int64), torch.zeros(1, 2, 3)


@pytest.mark.parametrize(
    ("tokens", "logprobs", "budget", "rule", "message"),
    [
        (TOKENS[0], LOGPROBS, 4, "chain", r"topk_tokens has shape \(2, 3\)"),
        (TOKENS, LOGPROBS[:, :1], 4, "chain", r"topk_logprobs has shape \(1, 1, 3\)"),
        (TOKENS.int(), LOGPROBS, 4, "chain", "topk_tokens is torch.int32"),
        (TOKENS, LOGPROBS.double(), 4, "chain", "topk_logprobs is torch.float64"),
        (TOKENS, LOGPROBS.to("meta"), 4, "chain", "topk_logprobs is on meta"),
        (TOKENS, LOGPROBS, 0, "chain", "budget=0: it must be"),
        (TOKENS, LOGPROBS, -1, "chain", "budget=-1: it must be"),
        (TOKENS, LOGPROBS, 4.0, "chain", "budget=4.0: it must be"),
        (TOKENS, LOGPROBS, True, "chain", "budget=True: it must be"),
        (TOKENS, LOGPROBS, 4, "widest", "rule='widest': it must be one of best_first"),
        (TOKENS, LOGPROBS * torch.nan, 4, "best_first", r"topk_logprobs\[0, 0, 0\] is nan"),
        (TOKENS, LOGPROBS + torch.inf, 4, "best_first", r"topk_logprobs\[0, 0, 0\] is inf"),
        (
            TOKENS,
            torch.tensor([[[0.0, -1, -2], [-2, -1, -3]]]),
            4,
            "best_first",
            r"topk_logprobs\[0, 1, 1\] is -1.0: .* descend",
        ),
    ],
)
def test_bad_input_is_one_clear_error(tokens, logprobs, budget, rule, message):
    with pytest.raises(ValueError, match=message):
        build_tree(tokens, logprobs, budget, rule)


def test_on_a_device_nan_is_no_candidate():
    logprobs = torch.tensor([[[-1.0, torch.nan]]])
    tree = build_tensors(torch.tensor([[[7, 8]]]), logprobs, 4, "best_first")
    assert tree.tokens.tolist() == [[0, 7, 0, 0]]
    assert tree.sizes.tolist() == [2]
