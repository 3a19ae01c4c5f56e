"""The start weights of a head: blocks of the target itself.

Contract: pure apart from the parameters it sets. The target's RMSNorm gains are folded into the
projections that follow them, because a head's keys and values also read context rows that have no
input norm. The feature projection starts as a copy of the tap nearest the end, so the first layers
see what they saw in the target; the other taps start near zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.model import HeadModel

NOISE = 0.002
"""Standard deviation of the projection's weights for the taps that start unused."""


def default_target_layer_ids(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """Taps of a new head: even steps from layer 1 to the fourth from the end.

    The rule of the released `build_target_layer_ids`; a one-layer head taps the middle.
    """
    if num_layers == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 4
    return tuple(round(1 + i * span / (num_layers - 1)) for i in range(num_layers))


def head_config(
    target: Any,
    *,
    num_layers: int,
    block_size: int,
    mask_token_id: int,
    target_layer_ids: tuple[int, ...] | None = None,
    causal: bool = True,
) -> HeadConfig:
    """A head as wide as `target` (a transformers config). ValueError as `HeadConfig` raises it."""
    heads = target.num_attention_heads
    rope = dict(getattr(target, "rope_parameters", None) or {})
    theta = rope.pop("rope_theta", None) or getattr(target, "rope_theta", None)
    return HeadConfig.from_dict(
        {
            "block_size": block_size,
            "hidden_size": target.hidden_size,
            "intermediate_size": target.intermediate_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": heads,
            "num_key_value_heads": getattr(target, "num_key_value_heads", heads),
            "head_dim": getattr(target, "head_dim", None) or target.hidden_size // heads,
            "vocab_size": target.vocab_size,
            "max_position_embeddings": target.max_position_embeddings,
            "rms_norm_eps": float(target.rms_norm_eps),
            "rope_theta": theta,
            "rope_parameters": rope,
            "num_target_layers": target.num_hidden_layers,
            "is_causal": causal,
            "dflash_config": {
                "mask_token_id": mask_token_id,
                "target_layer_ids": list(
                    target_layer_ids or default_target_layer_ids(target.num_hidden_layers, 5)
                ),
            },
        }
    )


def feature_scale(taps: Tensor) -> Tensor:
    """Root mean square of each feature over sample rows [R, T*H]: [T*H], never zero.

    Training divides features by it, so that one learning rate fits all of them; export folds it
    into the projection.
    """
    return taps.float().square().mean(dim=0).sqrt().clamp_min(1e-6)


@torch.no_grad()
def start_from_target(head: HeadModel, target: Any, taps: Tensor, scale: Tensor) -> None:
    """Fill `head` from the last blocks of `target`.

    taps [R, T*H]: sample features, not divided by `scale` [T*H]. The blocks must have the head's
    shape (llama or qwen layout).
    """
    decoder = target.get_decoder()
    blocks = decoder.layers[-head.config.num_hidden_layers :]
    hidden = head.config.hidden_size
    last = scale[-hidden:]
    torch.nn.init.normal_(head.fc.weight, std=NOISE)
    head.fc.weight[:, -hidden:] = torch.diag(last / last.mean())
    sample = head.context(taps / scale)
    layers: list[Any] = list(head.layers)
    for layer, block in zip(layers, blocks, strict=True):
        attention, source = layer.self_attn, block.self_attn
        gain = block.input_layernorm.weight.float()
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(attention, name).weight.copy_(getattr(source, name).weight * gain)
        attention.o_proj.weight.copy_(source.o_proj.weight)
        gain = block.post_attention_layernorm.weight.float()
        for name in ("gate_proj", "up_proj"):
            getattr(layer.mlp, name).weight.copy_(getattr(block.mlp, name).weight * gain)
        layer.mlp.down_proj.weight.copy_(block.mlp.down_proj.weight)
        for name in ("q", "k"):
            norm = getattr(attention, f"{name}_norm")
            if hasattr(source, f"{name}_norm"):
                norm.weight.copy_(getattr(source, f"{name}_norm").weight)
            else:
                projected = getattr(attention, f"{name}_proj")(sample)
                norm.weight.fill_(projected.square().mean().sqrt())
    head.norm.weight.copy_(decoder.norm.weight)
