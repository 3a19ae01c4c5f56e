"""Learning rate as a pure function of the step, and the optimiser it drives."""

from __future__ import annotations

import math

import torch
from torch import nn

from jetspec_sglang.training.recipe import Recipe


def learning_rate(step: int, settings: Recipe) -> float:
    """Linear warm-up to the peak, then a cosine down to `min_lr_share` of it at the last step."""
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, settings.steps - warmup)
    floor = settings.min_lr_share
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def make_optimizer(module: nn.Module, settings: Recipe) -> torch.optim.Optimizer:
    """AdamW; gains are not decayed."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups = [
        {
            "params": [p for p in parameters if p.ndim > 1],
            "weight_decay": settings.weight_decay,
        },
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    rate, betas = settings.learning_rate, (0.9, settings.beta2)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)
