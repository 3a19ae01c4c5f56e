"""`argmax`: `torch.argmax` over the vocabulary, faster on the CPU.

There torch reduces value and index together without vector instructions. Finding the largest value
of each slice of a row first, which is vectorised, leaves one slice to search.
"""

from __future__ import annotations

from functools import cache

import torch

_SMALLEST, _LARGEST = 32, 512


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """Index int64 [rows] of the largest value of each row of logits [rows, vocab].

    Of equal ones the first, and a NaN before all others, as `torch.argmax` on the CPU.
    """
    rows, vocab = logits.shape
    size = _slice_size(vocab) if logits.device.type == "cpu" else 0
    if not size:
        return torch.argmax(logits, dim=-1)
    slices = logits.reshape(rows, vocab // size, size)
    best = slices.amax(dim=-1).argmax(dim=-1)
    return best * size + slices[torch.arange(rows), best].argmax(dim=-1)


@cache
def _slice_size(vocab: int) -> int:
    """The largest useful divisor of `vocab`, 0 if there is none."""
    sizes = range(min(_LARGEST, vocab // 2), _SMALLEST - 1, -1)
    return next((size for size in sizes if vocab % size == 0), 0)
