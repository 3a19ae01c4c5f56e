"""Write a trained head in the release's layout: config.json, model.safetensors, README.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from jetspec_sglang.head.checkpoint import DRAFT_VOCAB_FILE, check_checkpoint
from jetspec_sglang.head.config import HeadConfig

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def export_head(
    folder: str | Path,
    config: HeadConfig,
    tensors: Mapping[str, Tensor],
    *,
    feature_scale: Tensor | None = None,
    draft_vocab: np.ndarray | None = None,
    card: str = "",
    dtype: str = "bfloat16",
) -> Path:
    """Write a head folder and check it. `feature_scale` [T*H] is folded into the projection."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().float() for name, tensor in tensors.items()}
    if feature_scale is not None:
        weights["fc.weight"] = weights["fc.weight"] / feature_scale.cpu()
    weights = {name: weight.to(DTYPES[dtype]).contiguous() for name, weight in weights.items()}
    file = folder / "model.safetensors"
    save_file(weights, file, metadata={"format": "pt"})
    file.chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config.to_dict(dtype), indent=2) + "\n")
    vocab = folder / DRAFT_VOCAB_FILE
    if draft_vocab is None:
        vocab.unlink(missing_ok=True)
    else:
        np.save(vocab, draft_vocab.astype(np.int32))
    if card:
        (folder / "README.md").write_text(card)
    check_checkpoint(folder, config)
    return folder
