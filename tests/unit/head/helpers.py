"""Tiny heads for the draft tests."""

import torch

from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.model import HeadModel

TINY = {
    "block_size": 5,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "vocab_size": 40,
    "rope_theta": 1000.0,
    "rms_norm_eps": 1e-6,
    "num_target_layers": 6,
    "dflash_config": {"causal_head": True, "target_layer_ids": [0, 2, 5], "mask_token_id": 3},
}


def tiny_config(**changes) -> HeadConfig:
    return HeadConfig.from_dict({**TINY, **changes})


def tiny_head(config: HeadConfig, seed: int = 0, dtype=torch.float64, draft_vocab=None):
    torch.manual_seed(seed)
    embed = torch.randn(config.vocab_size, config.hidden_size, dtype=dtype)
    lm_head = torch.randn(config.vocab_size, config.hidden_size, dtype=dtype)
    head = HeadModel(config, embed, lm_head, draft_vocab).to(dtype)
    for parameter in head.parameters():
        parameter.data = torch.randn_like(parameter) * (0.4 if parameter.ndim > 1 else 1.0)
    return head
