"""The accept walk as tensor operations of static shape: no host sync, fit for a CUDA graph."""

from __future__ import annotations

import torch

from jetspec_sglang.tree import Tree


def accept_tensors(
    tree: Tree, target_tokens: torch.Tensor, depth_limit: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The fields of `Accepted`.

    A node is accepted if it and all its ancestors carry the token the target chose at their
    parents. Pointer jumping settles that for every node at once: after k steps `accepted` spans
    2^k generations. Siblings being distinct, at most one node of each depth is accepted.
    """
    bs, budget = tree.tokens.shape
    width = depth_limit + 1
    rank = torch.arange(budget, device=tree.tokens.device).expand(bs, budget)
    ancestor = tree.parents.clamp(min=0)
    accepted = (tree.tokens == target_tokens.gather(1, ancestor)) & (rank < tree.sizes[:, None])
    accepted = accepted | (rank == 0)
    for _ in range(depth_limit.bit_length()):
        accepted = accepted & accepted.gather(1, ancestor)
        ancestor = ancestor.gather(1, ancestor)

    accepted = accepted & (tree.depths <= depth_limit)
    lens = accepted.sum(1)
    column = torch.where(accepted, tree.depths, width)  # what is not accepted: a spare column
    path = rank.new_full((bs, width + 1), -1).scatter_(1, column, rank)[:, :width]
    tokens = target_tokens.gather(1, path.clamp(min=0))
    bonus = tokens.gather(1, lens[:, None] - 1).squeeze(1)
    return path, lens.to(torch.int32), torch.where(path >= 0, tokens, 0), bonus
