"""`Scorer`: the head's hidden rows against the target's LM head, cut to the W best tokens.

With a draft vocabulary only those rows of the LM head are scored, copied once: a running server's
weights do not change (`weights` refuses it).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from jetspec_sglang.device.base import Linear


class Scorer:
    """Top-W tokens and log-probabilities of hidden rows."""

    def __init__(
        self,
        lm_head: Any,
        width: int,
        draft_vocab: torch.Tensor | None,
        make_linear: Callable[[torch.Tensor], Linear],
    ) -> None:
        """
        Args:
            lm_head: the target's, with a dense `weight` [vocab, hidden].
            width: W, candidates per depth.
            draft_vocab: int64 [v], ids the head drafts from, or None for all.
            make_linear: turns a weight [n, hidden] into x -> x @ weight.T for the device.
        """
        weight: torch.Tensor = lm_head.weight
        self._ids = draft_vocab
        if draft_vocab is not None:
            weight = weight.detach()[draft_vocab].contiguous()
        elif hasattr(lm_head, "org_vocab_size"):
            weight = weight[: lm_head.org_vocab_size]
        if width > weight.shape[0]:
            raise ValueError(
                f"--speculative-eagle-topk {width}: the draft vocabulary has {weight.shape[0]} ids"
            )
        self._width = width
        self._dtype = weight.dtype
        self._linear = make_linear(weight)

    def top(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden [bs, D, hidden_size] -> tokens int64 and log-probs float32, [bs, D, W]."""
        logits = self._linear(hidden.reshape(-1, hidden.shape[-1]).to(self._dtype)).float()
        values, index = torch.topk(logits, self._width, dim=-1)
        logprobs = values - torch.logsumexp(logits, dim=-1, keepdim=True)
        tokens = index if self._ids is None else self._ids[index]
        shape = (*hidden.shape[:2], self._width)
        return tokens.view(shape), logprobs.view(shape)
