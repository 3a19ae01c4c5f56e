"""The anchors of a training step: a pure function of the seed and the step.

Contract: no I/O and no state, so that a resumed run, and any number of processes, draw exactly the
same global batches. An anchor is a response token that is followed by at least one more; the block
at position p is scored against the tokens at p + 1, p + 2, ... as far as the answer goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from jetspec_sglang.training.responses import Responses

PAD = -1
"""Label of a depth past the end of its answer, and of the anchors that fill up a short one."""


@dataclass(frozen=True, slots=True)
class Batch:
    """N sequences with A anchors each; D = depths scored.

    tokens int64 [N, L] (0 after the end), lengths int64 [N], anchors int64 [N, A] (positions),
    labels int64 [N, A, D] (token ids, or PAD), given int64 [N, A]: how many depths of a block hold
    their real tokens and are not scored.
    """

    tokens: Tensor
    lengths: Tensor
    anchors: Tensor
    labels: Tensor
    given: Tensor

    @property
    def anchor_tokens(self) -> Tensor:
        return self.tokens.gather(1, self.anchors)

    @property
    def distances(self) -> Tensor:
        """Depths after the last real token, from 0 [N, A, D]; below 0 where a token is given."""
        steps = torch.arange(self.labels.shape[-1], device=self.labels.device)
        return steps - self.given[..., None]

    @property
    def scored(self) -> Tensor:
        """Where the loss looks: bool [N, A, D]."""
        return (self.labels != PAD) & (self.distances >= 0)

    def to(self, device: torch.device) -> Batch:
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Sampler:
    """Global batches of `sequences` sequences with `anchors` anchors each.

    With probability `short_share` a step scores only `short_depths` depths, which costs less; the
    rows that are left do not change, since a causal block's rows never see later ones. A share
    `real_share` of the anchors gets 1 to D - 1 of its real tokens.
    """

    responses: Responses
    sequences: int
    anchors: int
    depths: int
    seed: int = 0
    short_depths: int = 0
    short_share: float = 0.0
    real_share: float = 0.0

    def __post_init__(self) -> None:
        if len(self.responses) < self.sequences:
            raise ValueError(
                f"a step takes {self.sequences} sequences, the data has {len(self.responses)}"
            )

    @property
    def steps_per_epoch(self) -> int:
        return len(self.responses) // self.sequences

    def indices(self, step: int) -> np.ndarray:
        """Sequences of global step `step` (from 0): each epoch is a fresh shuffle."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = np.random.default_rng((self.seed, epoch)).permutation(len(self.responses))
        return order[place * self.sequences : (place + 1) * self.sequences]

    def step_depths(self, step: int) -> int:
        if not self.short_depths:
            return self.depths
        draw = np.random.default_rng((self.seed, step, 1)).random()
        return self.short_depths if draw < self.short_share else self.depths

    def sample_anchors(self, step: int, index: int) -> np.ndarray:
        """Up to `anchors` distinct positions of sequence `index`, ascending."""
        first, last = self.responses.response_start[index], self.responses.lengths[index] - 1
        positions = np.arange(first, last)
        if len(positions) <= self.anchors:
            return positions
        random = np.random.default_rng((self.seed, step, 2, int(index)))
        return np.sort(random.choice(positions, self.anchors, replace=False))

    def sample_given(self, step: int, index: int, anchors: int, depths: int) -> np.ndarray:
        """How many real tokens each of an answer's anchors gets."""
        if not self.real_share or depths == 1:
            return np.zeros(anchors, dtype=np.int64)
        random = np.random.default_rng((self.seed, step, 3, int(index)))
        real = random.random(anchors) < self.real_share
        return np.where(real, random.integers(1, depths, anchors), 0)

    def batch(self, step: int) -> tuple[np.ndarray, Batch]:
        """The sequence indices and the batch of `step`."""
        indices, depths = self.indices(step), self.step_depths(step)
        chosen = [self.sample_anchors(step, index) for index in indices]
        given = [
            self.sample_given(step, index, len(anchors), depths)
            for index, anchors in zip(indices, chosen, strict=True)
        ]
        return indices, make_batch(self.responses, indices, chosen, given, depths)


def make_batch(
    responses: Responses,
    indices: Sequence[int] | np.ndarray,
    anchors: Sequence[np.ndarray],
    given: Sequence[np.ndarray],
    depths: int,
) -> Batch:
    """Pad the chosen sequences and anchors into one batch; padding carries the label PAD."""
    lengths = responses.lengths[np.asarray(indices, dtype=np.int64)]
    tokens = np.zeros((len(indices), int(lengths.max())), dtype=np.int64)
    width = max(1, max(len(a) for a in anchors))
    places = np.zeros((len(indices), width), dtype=np.int64)
    labels = np.full((len(indices), width, depths), PAD, dtype=np.int64)
    real = np.zeros((len(indices), width), dtype=np.int64)
    for row, (index, chosen) in enumerate(zip(indices, anchors, strict=True)):
        sequence = responses.sequence(index)
        tokens[row, : len(sequence)] = sequence
        places[row, : len(chosen)] = chosen
        real[row, : len(chosen)] = given[row]
        ahead = chosen[:, None] + np.arange(1, depths + 1)
        inside = ahead < len(sequence)
        labels[row, : len(chosen)] = np.where(
            inside, sequence[np.minimum(ahead, len(sequence) - 1)], PAD
        )
    arrays = (tokens, lengths, places, labels, real)
    return Batch(*(torch.from_numpy(array) for array in arrays))


def rows(batch: Batch, part: slice) -> Batch:
    """The sequences `part` of a batch, without the padding they do not need."""
    lengths = batch.lengths[part]
    longest = int(lengths.max())
    return Batch(
        batch.tokens[part, :longest],
        lengths,
        batch.anchors[part],
        batch.labels[part],
        batch.given[part],
    )
