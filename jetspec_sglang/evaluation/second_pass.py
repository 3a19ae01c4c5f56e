"""A second pass of the head over its own tree: nodes as real tokens, each followed by masks.

The block holds the anchor, the first N - 1 nodes of the tree at their depths, and M mask rows after
each node. A row sees the context, the anchor, its own ancestors, and the earlier masks of the same
node. The M distributions behind a node are the head's for that branch alone.

Contract: `second_pass` is the head's forward in plain torch, no cache; `ConditionedDraft` is a
draft for `conditioning.path_ranks`. Names in shapes: A anchors, N nodes, M masks, W candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.tree import Tree

State = tuple[int, int, int, int]
"""Depth, rank in the first tree (-1 outside it), the node whose rows speak, rows since then."""
_SCORED_ANCHORS = 32


@torch.no_grad()
def second_pass(
    head: HeadModel,
    taps: Tensor,
    anchors: Tensor,
    tree: Tree,
    anchor_tokens: Tensor,
    masks: int,
    width: int,
) -> tuple[Tensor, Tensor]:
    """Best tokens and log-probabilities after nodes 1..N-1: [A, N - 1, M, W], int64 and float32.

    taps [1, L, T*H]; anchors and anchor_tokens [A]; `tree` of N nodes per anchor. ValueError for a
    head whose rows predict the next token: a mask row must predict the token of its own depth.
    """
    if head.config.draft_shift:
        raise ValueError("draft_shift = true: the second pass needs a head with draft_shift false")
    nodes = tree.budget
    tokens, offsets, see = rows_of(tree, anchor_tokens, masks, head.config.mask_token_id)
    context = torch.arange(taps.shape[1]) < anchors[:, None]
    sight = (context[None, None, None, :, None], see[None, None, None])
    states = head.block(taps, (anchors[:, None] + offsets)[None], tokens[None], sight)[0, :, nodes:]
    found_tokens, found_logprobs = [], []
    for part in head.norm(states).split(_SCORED_ANCHORS):
        logits = F.linear(part, head.lm_head.to(part.dtype)).float()
        top = logits.topk(width, dim=-1)
        found_logprobs.append(top.values - logits.logsumexp(dim=-1, keepdim=True))
        found_tokens.append(head.ids(top.indices))
    shape = (len(anchors), nodes - 1, masks, width)
    return torch.cat(found_tokens).view(shape), torch.cat(found_logprobs).view(shape)


def rows_of(
    tree: Tree, anchor_tokens: Tensor, masks: int, mask_id: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The block's tokens and offsets to the anchor [A, n], and what each row sees [A, n, n].

    n = N + (N - 1) M rows: the nodes by rank, then each node's masks.
    """
    count, nodes = tree.tokens.shape
    ancestors = torch.eye(nodes, dtype=torch.bool).repeat(count, 1, 1)
    every = torch.arange(count)
    for rank in range(1, nodes):
        ancestors[:, rank] |= ancestors[every, tree.parents[:, rank].clamp(min=0)]
    behind = torch.arange(1, nodes).repeat_interleave(masks)
    step = torch.arange(masks).repeat(nodes - 1)
    own = (behind[:, None] == behind) & (step[:, None] >= step)
    see = torch.zeros(count, nodes + len(behind), nodes + len(behind), dtype=torch.bool)
    see[:, :nodes, :nodes] = ancestors
    see[:, nodes:, :nodes] = ancestors[:, behind]
    see[:, nodes:, nodes:] = own
    real = torch.cat((anchor_tokens[:, None], tree.tokens[:, 1:]), dim=1)
    tokens = torch.cat((real, torch.full((count, len(behind)), mask_id)), dim=1)
    offsets = torch.cat((tree.depths, tree.depths[:, behind] + 1 + step), dim=1)
    return tokens, offsets, see


class ConditionedDraft:
    """One anchor's first candidates. After the first `nodes` nodes, their own rows replace them."""

    def __init__(
        self,
        first: tuple[Sequence[Sequence[int]], Sequence[Sequence[float]]],
        second: tuple[Sequence[Any], Sequence[Any]],
        ranks: dict[tuple[int, int], int],
        nodes: int,
        masks: int,
    ) -> None:
        """first: tokens and logprobs [D][W]. second: [N - 1][M][W]. ranks: of the first tree's
        nodes by (parent's rank, token). `nodes` 1 is the first pass alone.
        """
        self.first, self.second, self.ranks = first, second, ranks
        self.nodes, self.masks = nodes, masks

    def root(self) -> State:
        return 0, 0, 0, 0

    def after(self, state: State) -> tuple[Sequence[int], Sequence[float]] | None:
        depth, _, source, since = state
        if source == 0:
            if depth == len(self.first[0]):
                return None
            return self.first[0][depth], self.first[1][depth]
        if since == self.masks:
            return None
        return self.second[0][source - 1][since], self.second[1][source - 1][since]

    def child(self, state: State, sibling: int) -> State:
        depth, rank, source, since = state
        following = self.after(state)
        assert following is not None
        rank = self.ranks.get((rank, following[0][sibling]), -1)
        if 0 < rank < self.nodes:
            return depth + 1, rank, rank, 0
        return depth + 1, -1, source, since + 1
