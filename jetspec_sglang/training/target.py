"""`Recorder`: one pass of the frozen target that records what the head reads and learns from.

Contract: `load_target` reads a Hugging Face folder (or hub id); recording itself is pure. No output
matrix is applied: a teacher's logits are recomputed from its last hidden state where needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Features(NamedTuple):
    """taps [N, L, T*H] (outputs of the tapped blocks, concatenated), final [N, L, H] (normed)."""

    taps: Tensor
    final: Tensor


def load_target(path: str | Path, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The target as a frozen transformers causal LM in evaluation mode."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def matrices(model: Any) -> tuple[Tensor, Tensor]:
    """The target's embedding and output matrices, [V, H] each."""
    return model.get_input_embeddings().weight, model.get_output_embeddings().weight


def stop_ids(model: Any) -> tuple[int, ...]:
    """Ids that end the target's answers, ascending."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.eos_token_id
    return tuple(sorted(ids if isinstance(ids, list) else [ids] if ids is not None else []))


class Recorder:
    """Runs right-padded token batches through a causal LM and keeps the outputs of some blocks.

    Padding needs no mask: with right padding no real token sees any of it.
    """

    def __init__(self, model: Any, target_layer_ids: tuple[int, ...]) -> None:
        self.decoder = model.get_decoder()
        self._taps: dict[int, Tensor] = {}
        self._ids = target_layer_ids
        for layer in target_layer_ids:
            self.decoder.layers[layer].register_forward_hook(self._keep(layer))

    def _keep(self, layer: int) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            self._taps[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    @torch.no_grad()
    def __call__(self, tokens: Tensor) -> Features:
        final = self.decoder(input_ids=tokens, use_cache=False).last_hidden_state
        taps = torch.cat([self._taps[layer] for layer in self._ids], dim=-1)
        self._taps.clear()
        return Features(taps, final)
