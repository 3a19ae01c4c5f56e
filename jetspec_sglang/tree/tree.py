"""The draft trees of one batch as tensors in rank order. Pure data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree per request, B nodes wide; column r holds the node of rank r.

    Column 0 is the root; its token is a placeholder 0 because the anchor is the caller's.
    A tree with fewer than B nodes ends in inert padding (token 0, parent -1, depth 0,
    score -inf): no node descends from it and it can never be accepted.
    """

    tokens: torch.Tensor  # int64 [bs, B]
    parents: torch.Tensor  # int64 [bs, B]: rank of the parent, -1 for root and padding
    depths: torch.Tensor  # int64 [bs, B]: 0 for root and padding
    scores: torch.Tensor  # float32 [bs, B]: sum of log p along the path, in nats
    sizes: torch.Tensor  # int64 [bs]: real nodes, root included, 1 <= size <= B

    @property
    def budget(self) -> int:
        return self.tokens.shape[1]

    def cpu(self) -> Tree:
        """The same trees in host memory."""
        return Tree(
            tokens=self.tokens.cpu(),
            parents=self.parents.cpu(),
            depths=self.depths.cpu(),
            scores=self.scores.cpu(),
            sizes=self.sizes.cpu(),
        )
