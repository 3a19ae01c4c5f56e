"""Sampled tokens against the target's own probabilities, by transformers.

For a token drawn from p, log p(token) + H(p) has mean zero given everything before it, so its
sum over a run is a martingale: divided by the root of the summed variances it is close to a
standard normal, whatever the texts. The share of argmax tokens gives a second statistic, the one
that a bias towards drafted tokens moves first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(slots=True)
class Martingale:
    """Sums over sampled tokens; z of 0 tokens is 0."""

    tokens: int = 0
    surprise: float = 0.0
    surprise_variance: float = 0.0
    argmax: float = 0.0
    argmax_variance: float = 0.0

    @property
    def z_surprise(self) -> float:
        return self.surprise / max(self.surprise_variance, 1e-12) ** 0.5

    @property
    def z_argmax(self) -> float:
        return self.argmax / max(self.argmax_variance, 1e-12) ** 0.5


@torch.inference_mode()
def martingale(
    model: Any, runs: Iterable[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
) -> Martingale:
    """Both statistics over runs of (prompt ids, sampled ids)."""
    result = Martingale()
    for prompt, output in runs:
        ids = torch.tensor([[*prompt, *output]])
        keep = len(output) + 1
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits[0, :-1]
        logprobs = (logits.double() / temperature).log_softmax(-1)
        p = logprobs.exp()
        entropy = -(p * logprobs).sum(-1)
        variance = (p * logprobs**2).sum(-1) - entropy**2
        tokens = torch.tensor(list(output))
        best, index = p.max(-1)
        result.tokens += len(output)
        result.surprise += float((logprobs.gather(-1, tokens[:, None])[:, 0] + entropy).sum())
        result.surprise_variance += float(variance.sum())
        result.argmax += float(((index == tokens).double() - best).sum())
        result.argmax_variance += float((best * (1 - best)).sum())
    return result
