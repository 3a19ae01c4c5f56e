"""The GPU's mask builder, whose arithmetic needs no GPU."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.device.cuda import ancestors, flat_mask


def tree_parents(draw, width, size):
    parents = [-1] + [draw(st.integers(0, node - 1)) for node in range(1, size)]
    return parents + [-1] * (width - size)


@st.composite
def batches(draw):
    width = draw(st.integers(1, 20))
    bs = draw(st.integers(1, 4))
    rows = [tree_parents(draw, width, draw(st.integers(1, width))) for _ in range(bs)]
    prefixes = draw(st.lists(st.integers(0, 9), min_size=bs, max_size=bs))
    return rows, prefixes


def visible(parents, node):
    """The nodes a node sees: itself, its ancestors, and always the root."""
    seen = {0, node}
    while parents[node] >= 0:
        node = parents[node]
        seen.add(node)
    return seen


@given(batches())
def test_every_node_sees_its_path_and_nothing_else(batch):
    rows, _ = batch
    reach = ancestors(torch.tensor(rows))
    for i, parents in enumerate(rows):
        for node in range(len(parents)):
            got = set(reach[i, node].nonzero().flatten().tolist())
            assert got == visible(parents, node)


@given(batches())
def test_the_flat_mask_is_a_row_major_block_per_request(batch):
    rows, prefixes = batch
    width = len(rows[0])
    mask = flat_mask(torch.tensor(rows), torch.tensor(prefixes), sum(prefixes))
    start = 0
    for parents, prefix in zip(rows, prefixes, strict=True):
        block = mask[start : start + width * (prefix + width)].view(width, prefix + width)
        assert block[:, :prefix].all()
        for node in range(width):
            got = set(block[node, prefix:].nonzero().flatten().tolist())
            assert got == visible(parents, node)
        start += block.numel()
    assert start == mask.numel()
