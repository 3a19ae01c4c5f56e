"""`Objective`: the module that training wraps: head, features and labels in, loss and counts out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training.batches import PAD, Batch
from jetspec_sglang.training.loss_names import Loss
from jetspec_sglang.training.losses import depth_weights, distillation_loss
from jetspec_sglang.training.target import Features


@dataclass(frozen=True, slots=True)
class Score:
    """Sums over a batch: loss (differentiable), and per depth rows scored and top-1 hits [D].

    Rows and hits are those of blocks without real tokens, as drafting has them.
    """

    loss: Tensor
    rows: Tensor
    hits: Tensor


class Objective(nn.Module):
    """Weighted loss of a head over every (anchor, depth) whose label is known.

    `scale` [T*H] divides the features. A label outside the draft vocabulary counts as a miss and
    adds no sft loss. The teacher of depth k is the target's state at position p + k - 1. Weights
    count depths from the last real token of a block on.
    """

    scale: Tensor
    columns: Tensor
    depth_weights: Tensor

    def __init__(
        self,
        head: HeadModel,
        scale: Tensor,
        parts: dict[Loss, float],
        *,
        temperature: float,
        gamma: float,
        chunk: int,
    ) -> None:
        super().__init__()
        self.head = head
        self.parts, self.temperature, self.chunk = parts, temperature, chunk
        self.register_buffer("scale", scale)
        self.register_buffer("columns", _columns(head), persistent=False)
        weights = depth_weights(head.config.depths, gamma)
        self.register_buffer("depth_weights", weights, persistent=False)

    def weight_sum(self, batch: Batch) -> Tensor:
        """The divisor of a batch's loss; normally that of the whole global batch."""
        return self.depth_weights[batch.distances[batch.scored]].sum()

    def forward(self, batch: Batch, features: Features, divisor: Tensor) -> Score:
        depths = batch.labels.shape[-1]
        scored, distances = batch.scored, batch.distances
        block = self.head.mask_block(batch.anchor_tokens, depths + 1)
        real = (distances < 0) & (batch.labels != PAD)
        block[..., 1:] = torch.where(real, batch.labels, block[..., 1:])
        states = self.head.hidden(features.taps / self.scale, batch.anchors, block)[scored]
        steps = torch.arange(depths, device=states.device)
        sequence, anchor, depth = scored.nonzero(as_tuple=True)
        teacher = features.final[sequence, batch.anchors[sequence, anchor] + steps[depth]]
        labels = self.columns[batch.labels[scored]]
        total, best = distillation_loss(
            states,
            self.head.lm_head,
            teacher,
            labels,
            self.depth_weights[distances[scored]],
            self.parts,
            self.temperature,
            self.chunk,
        )
        zeros = torch.zeros(self.head.config.depths, device=states.device)
        masked = (batch.given[sequence, anchor] == 0).to(zeros.dtype)
        rows = zeros.index_add(0, depth, masked)
        hits = zeros.index_add(0, depth, (best == labels) * masked)
        return Score(total / divisor, rows, hits)


def _columns(head: HeadModel) -> Tensor:
    """Column of lm_head for each id, -1 where the draft vocabulary lacks it: int64 [V]."""
    if head.draft_vocab is None:
        return torch.arange(head.config.vocab_size)
    columns = torch.full((head.config.vocab_size,), -1, dtype=torch.int64)
    columns[head.draft_vocab] = torch.arange(len(head.draft_vocab))
    return columns
