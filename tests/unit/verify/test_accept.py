from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jetspec_sglang.tree import RULES, Tree, build_tree
from jetspec_sglang.verify.accept import accept
from jetspec_sglang.verify.accept_tensors import accept_tensors
from jetspec_sglang.verify.links import child_links
from tests.support.accept_reference import accept_reference, child_links_reference
from tests.unit.tree.lattices import budgets, cut, lattices

FIELDS = ("path", "lens", "tokens", "bonus")


@st.composite
def walks(draw):
    """A tree whose depths share a small vocabulary, and target tokens that often hit."""
    tokens, logprobs = draw(lattices(max_width=4))
    bs, depth, width = tokens.shape
    tokens = torch.arange(width).expand(bs, depth, width).contiguous()  # 0 is a real token too
    tree = build_tree(tokens, logprobs, draw(budgets), draw(st.sampled_from(RULES)))
    count = tree.tokens.numel()
    favourite = draw(st.sampled_from([[0], [0, 1], [0, 1, 2, 3, 9]]))
    targets = draw(st.lists(st.sampled_from(favourite), min_size=count, max_size=count))
    return tree, torch.tensor(targets, dtype=torch.int64).view(tree.tokens.shape), depth


@settings(max_examples=200, deadline=None)
@given(walks())
def test_every_walk_equals_the_reference(walk):
    expected = accept_reference(*walk)
    accepted = accept(*walk)
    for got in (accept_tensors(*walk), [getattr(accepted, field) for field in FIELDS]):
        for field, left, right in zip(FIELDS, got, expected, strict=True):
            assert left.dtype == right.dtype, field
            assert torch.equal(left, right), f"{field}: {left} != {right}"


@settings(max_examples=80, deadline=None)
@given(walks())
def test_the_path_follows_the_target_as_far_as_it_can(walk):
    tree, targets, depth_limit = walk
    accepted = accept(*walk)
    assert accepted.path.shape == accepted.tokens.shape == (len(targets), depth_limit + 1)
    assert accepted.lens.dtype == torch.int32
    for i in range(len(targets)):
        length, size = int(accepted.lens[i]), int(tree.sizes[i])
        path = accepted.path[i, :length].tolist()
        assert path[0] == 0
        for depth, (parent, node) in enumerate(pairwise(path), start=1):
            assert tree.parents[i, node] == parent
            assert tree.depths[i, node] == depth
            assert tree.tokens[i, node] == targets[i, parent]
        last = path[-1]
        for node in range(1, size):
            if tree.parents[i, node] == last:
                assert tree.tokens[i, node] != targets[i, last]
        assert accepted.tokens[i, :length].tolist() == targets[i, path].tolist()
        assert accepted.bonus[i] == targets[i, last]
        assert (accepted.path[i, length:] == -1).all()
        assert (accepted.tokens[i, length:] == 0).all()


@settings(max_examples=80, deadline=None)
@given(walks())
def test_a_cut_tree_accepts_the_nodes_it_kept(walk):
    """The counterfactual curve: with budget b the walk commits the accepted ranks below b."""
    tree, targets, depth_limit = walk
    whole = accept(*walk)
    for budget in range(1, tree.budget + 1):
        less = accept(cut(tree, budget), targets[:, :budget], depth_limit)
        kept = ((whole.path >= 0) & (whole.path < budget)).sum(1)
        assert torch.equal(less.lens.long(), kept)


@settings(max_examples=80, deadline=None)
@given(walks())
def test_child_links_equal_the_reference(walk):
    for left, right in zip(child_links(walk[0]), child_links_reference(walk[0]), strict=True):
        assert left.dtype == torch.int64
        assert torch.equal(left, right)


def test_child_links_reach_every_node_once():
    tree = build_tree(torch.arange(6).view(1, 2, 3), torch.zeros(1, 2, 3), 16)
    next_token, next_sibling = (links[0].tolist() for links in child_links(tree))
    seen, stack = [], [0]
    while stack:
        node = stack.pop()
        seen.append(node)
        stack += [link for link in (next_sibling[node], next_token[node]) if link >= 0]
    assert sorted(seen) == list(range(int(tree.sizes[0])))


def test_padding_is_never_accepted():
    tree = build_tree(torch.empty(1, 0, 3).long(), torch.empty(1, 0, 3), 4)
    targets = torch.zeros(1, 4, dtype=torch.int64)  # the padding's own token
    for fields in (accept_tensors(tree, targets, 3), accept_reference(tree, targets, 3)):
        assert fields[0].tolist() == [[0, -1, -1, -1]]
    assert accept(tree, targets, 3).lens.tolist() == [1]


TREE = build_tree(torch.zeros(2, 1, 1).long(), torch.zeros(2, 1, 1), 3)
TARGETS = torch.zeros(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("tree", "targets", "depth_limit", "message"),
    [
        (TREE, TARGETS[:, :2], 1, r"target_tokens has shape \(2, 2\)"),
        (TREE, TARGETS.int(), 1, "target_tokens is torch.int32"),
        (TREE, TARGETS.to("meta"), 1, "target_tokens is on meta"),
        (TREE, TARGETS, -1, "depth_limit=-1"),
    ],
)
def test_bad_input_is_one_clear_error(tree: Tree, targets, depth_limit, message):
    with pytest.raises(ValueError, match=message):
        accept(tree, targets, depth_limit)
