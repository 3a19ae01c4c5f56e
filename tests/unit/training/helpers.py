"""A tiny llama target, answers to learn, and settings for runs of a few steps."""

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jetspec_sglang.training.recipe import Recipe
from jetspec_sglang.training.responses import Responses, pack, save

VOCAB = 48


def tiny_target(folder: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128,
        tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def answers(count: int = 12, seed: int = 0, length: int = 24) -> Responses:
    random = np.random.default_rng(seed)
    sequences = [random.integers(6, VOCAB, length + int(random.integers(6))) for _ in range(count)]
    return pack(sequences, random.integers(3, 6, count), ["made"] * count)


def tiny_settings(folder: Path, run: str, **changes) -> Recipe:
    target = folder / "target"
    if not target.exists():
        tiny_target(target)
    data = folder / "answers.npz"
    if not data.exists():
        save(answers(), data)
    values = {
        "target": target, "data": (data,), "run": folder / run, "num_layers": 2, "block_size": 4,
        "mask_token_id": 5, "target_layer_ids": (0, 2, 4), "steps": 6, "sequences": 4,
        "micro_sequences": 2, "anchors": 5, "warmup_steps": 2, "learning_rate": 3e-3,
        "precision": "fp32", "log_every": 1, "checkpoint_every": 3, "logits_chunk": 7,
    }  # fmt: skip
    return Recipe.model_validate(values | changes)
