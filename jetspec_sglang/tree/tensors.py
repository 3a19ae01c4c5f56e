"""The tree rules as tensor operations of static shape: no host sync, fit for a CUDA graph.

Equal bit for bit to `reference` (same float32 sums, same order among ties). No I/O.
Values are not checked here, since that would wait for the device: a NaN counts as -inf.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from jetspec_sglang.tree.tree import Tree


class _Order(NamedTuple):
    """Nodes in best-first order, [bs, N] each; `scores` is -inf where there is no node."""

    siblings: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor
    scores: torch.Tensor


def build_tensors(
    topk_tokens: torch.Tensor, topk_logprobs: torch.Tensor, budget: int, rule: str
) -> Tree:
    """As `build_tree`, for tensors on any one device."""
    logprobs = topk_logprobs.nan_to_num(nan=-torch.inf, posinf=0.0, neginf=-torch.inf).clamp(max=0)
    if rule == "chain":
        topk_tokens, logprobs = topk_tokens[:, :, :1], logprobs[:, :, :1]
    order = _best_first(logprobs, budget)
    if rule == "accum_logp":
        order = _add_all_children(order, logprobs, budget)
    return _tree(order, topk_tokens, budget)


def _best_first(logprobs: torch.Tensor, budget: int) -> _Order:
    """Level by level, the best nodes of each depth; then one stable sort over all depths.

    A level is kept in rank order, so its stable sort breaks ties by (parent, sibling), and the
    levels are laid out by depth, so the final stable sort breaks them by depth first. A depth-d
    node is preceded by its d ancestors: more than B - d of them cannot be among B ranks.
    """
    bs, depth_limit, width = logprobs.shape
    root = logprobs.new_zeros(bs, 1)
    nothing = torch.zeros_like(root, dtype=torch.int64)
    levels = [_Order(nothing, nothing - 1, nothing, root)]
    start = 0
    for depth in range(1, min(depth_limit, budget - 1) + 1 if width else 1):
        above = levels[-1].scores
        grown = (above[:, :, None] + logprobs[:, depth - 1, None, :]).flatten(1)
        keep = min(grown.shape[1], budget - depth)
        scores, index = grown.sort(dim=1, descending=True, stable=True)
        index = index[:, :keep]
        parents = start + index // width
        levels.append(
            _Order(index % width, parents, torch.full_like(index, depth), scores[:, :keep])
        )
        start += above.shape[1]
    nodes = _Order(*(torch.cat(field, dim=1) for field in zip(*levels, strict=True)))

    scores, by_rank = nodes.scores.sort(dim=1, descending=True, stable=True)
    rank_of = torch.empty_like(by_rank)
    rank_of.scatter_(1, by_rank, _ramp(by_rank))
    by_rank = by_rank[:, :budget]
    parents = nodes.parents.gather(1, by_rank)
    parents = torch.where(parents < 0, parents, rank_of.gather(1, parents.clamp(min=0)))
    return _Order(
        nodes.siblings.gather(1, by_rank),
        parents,
        nodes.depths.gather(1, by_rank),
        scores[:, :budget],
    )


def _add_all_children(order: _Order, logprobs: torch.Tensor, budget: int) -> _Order:
    """From the visits in best-first order to the nodes they add, in order of adding."""
    bs, _, width = logprobs.shape
    visits = order.scores.shape[1]
    below = torch.cat([logprobs, logprobs.new_full((bs, 1, width), -torch.inf)], dim=1)
    step = below.gather(1, order.depths[:, :, None].expand(-1, -1, width))
    scores = (order.scores[:, :, None] + step).flatten(1)
    is_node = scores > -torch.inf
    rank = is_node.cumsum(1)  # the root has rank 0
    slot = torch.where(is_node & (rank < budget), rank, budget)

    # The rank of a visited node is that of the child slot (parent's visit, sibling) it came from.
    came_from = order.parents * width + order.siblings
    at_root = order.parents < 0
    parent_rank = torch.where(
        at_root, 0, rank.gather(1, came_from.clamp(min=0)) if width else torch.zeros_like(came_from)
    )

    def place(values: torch.Tensor, root: float, empty: float) -> torch.Tensor:
        """Scatter one field to its ranks. Values beyond the budget go into a spare column."""
        out = values.new_full((bs, budget + 1), empty)
        out.scatter_(1, slot, values)
        out[:, :1].fill_(root)
        return out[:, :budget]

    shape = (bs, visits, width)
    siblings = torch.arange(width, device=slot.device).expand(shape).flatten(1)
    parents = parent_rank[:, :, None].expand(shape).flatten(1)
    depths = (order.depths + 1)[:, :, None].expand(shape).flatten(1)
    return _Order(
        place(siblings, 0, 0),
        place(parents, -1, -1),
        place(depths, 0, 0),
        place(scores, 0, -torch.inf),
    )


def _tree(order: _Order, topk_tokens: torch.Tensor, budget: int) -> Tree:
    """Look tokens up, blank what is no node and pad to the budget."""
    bs, _, width = topk_tokens.shape
    spare = budget - order.scores.shape[1]
    pad = torch.nn.functional.pad
    scores = pad(order.scores, (0, spare), value=-torch.inf)
    depths = pad(order.depths, (0, spare))
    is_node = scores > -torch.inf
    lattice = torch.cat([topk_tokens.new_zeros(bs, width or 1), topk_tokens.flatten(1)], dim=1)
    tokens = lattice.gather(1, depths * width + pad(order.siblings, (0, spare)))
    return Tree(
        tokens=torch.where(is_node, tokens, 0),
        parents=torch.where(is_node, pad(order.parents, (0, spare), value=-1), -1),
        depths=torch.where(is_node, depths, 0),
        scores=scores,
        sizes=is_node.sum(1),
    )


def _ramp(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(like.shape[1], device=like.device).expand_as(like)
