"""Hypothesis strategies for the candidates a draft head gives."""

import torch
from hypothesis import strategies as st

from jetspec_sglang.tree import Tree

TIED = [0.0, -0.5, -1.0, float("-inf")]


@st.composite
def lattices(draw, max_requests=3, max_depth=6, max_width=5):
    """(topk_tokens, topk_logprobs), often full of ties, sometimes empty."""
    shape = (
        draw(st.integers(0, max_requests)),
        draw(st.integers(0, max_depth)),
        draw(st.integers(0, max_width)),
    )
    value = draw(
        st.sampled_from(
            [
                st.sampled_from(TIED),
                st.floats(-10, 0, width=32),
                st.one_of(st.sampled_from(TIED), st.floats(-2, 0, width=32)),
            ]
        )
    )
    count = shape[0] * shape[1] * shape[2]
    values = draw(st.lists(value, min_size=count, max_size=count))
    logprobs = torch.tensor(values, dtype=torch.float32).view(shape)
    logprobs = logprobs.sort(dim=-1, descending=True).values
    tokens = torch.arange(100, 100 + count).view(shape)
    return tokens, logprobs


budgets = st.integers(1, 40)


def cut(tree: Tree, budget: int) -> Tree:
    """The first `budget` nodes in rank order, as a tree."""
    return Tree(
        tokens=tree.tokens[:, :budget],
        parents=tree.parents[:, :budget],
        depths=tree.depths[:, :budget],
        scores=tree.scores[:, :budget],
        sizes=tree.sizes.clamp(max=budget),
    )
