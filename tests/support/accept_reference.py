"""The accept walk and the child links in plain Python: the definition of both. No I/O."""

from __future__ import annotations

from itertools import pairwise

import torch

from jetspec_sglang.tree import Tree


def accept_reference(
    tree: Tree, target_tokens: torch.Tensor, depth_limit: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The fields of `Accepted`, one request and one step at a time."""
    paths, committed = [], []
    for tokens, parents, size, targets in zip(
        tree.tokens.tolist(),
        tree.parents.tolist(),
        tree.sizes.tolist(),
        target_tokens.tolist(),
        strict=True,
    ):
        path = [0]
        while len(path) <= depth_limit:
            children = [rank for rank in range(1, size) if parents[rank] == path[-1]]
            taken = [rank for rank in children if tokens[rank] == targets[path[-1]]]
            if not taken:
                break
            path.append(taken[0])
        pad = depth_limit + 1 - len(path)
        paths.append(path + [-1] * pad)
        committed.append([targets[rank] for rank in path] + [0] * pad)

    shape = (len(paths), depth_limit + 1)
    path_ranks = torch.tensor(paths, dtype=torch.int64).view(shape)
    tokens_out = torch.tensor(committed, dtype=torch.int64).view(shape)
    lens = (path_ranks >= 0).sum(1)
    bonus = tokens_out.gather(1, lens[:, None] - 1).squeeze(1)
    return path_ranks, lens.to(torch.int32), tokens_out, bonus


def child_links_reference(tree: Tree) -> tuple[torch.Tensor, torch.Tensor]:
    """As `child_links`."""
    next_token = torch.full_like(tree.parents, -1)
    next_sibling = torch.full_like(tree.parents, -1)
    for i, (parents, size) in enumerate(
        zip(tree.parents.tolist(), tree.sizes.tolist(), strict=True)
    ):
        for rank in range(size):
            children = [child for child in range(1, size) if parents[child] == rank]
            if children:
                next_token[i, rank] = children[0]
            for child, sibling in pairwise(children):
                next_sibling[i, child] = sibling
    return next_token, next_sibling
