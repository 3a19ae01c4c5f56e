"""Draft heads with random weights, in the release's layout, for the embedded target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from jetspec_sglang.head.checkpoint import DRAFT_VOCAB_FILE, expected_tensors
from jetspec_sglang.head.config import HeadConfig

TARGET = {
    "hidden_size": 576,
    "intermediate_size": 192,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 100000.0,
    "num_target_layers": 30,
}
"""SmolLM2-135M-Instruct's sizes, with a small MLP."""


def head_config(
    *,
    causal: bool,
    layers: int = 1,
    target_layers: int = TARGET["num_target_layers"],
    **changes: Any,
) -> HeadConfig:
    """Taps at the second layer of the target, at its middle and at its last but one."""
    taps = [1, target_layers // 2, target_layers - 2]
    return HeadConfig.from_dict(
        {
            **TARGET,
            "num_target_layers": target_layers,
            "block_size": 8,
            "num_hidden_layers": layers,
            "is_causal": causal,
            "dflash_config": {"target_layer_ids": taps, "mask_token_id": 5},
            **changes,
        }
    )


def write_head(
    folder: Path, config: HeadConfig, seed: int = 0, draft_vocab: int | None = None
) -> Path:
    """A complete head folder in float32; `draft_vocab`: that many ids, evenly spread."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        if len(shape) > 1
        else 1 + 0.2 * torch.randn(shape, generator=generator)
        for name, shape in expected_tensors(config).items()
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_dict("float32"), indent=1))
    if draft_vocab is not None:
        ids = np.linspace(17, config.vocab_size - 1, draft_vocab).astype(np.int64)
        np.save(folder / DRAFT_VOCAB_FILE, ids)
    return folder
