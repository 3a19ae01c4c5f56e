"""Learning rate as a pure function of the step, and the optimiser it drives."""

from __future__ import annotations

import math

import torch
from torch import nn

from jetspec_sglang.training.settings import TrainSettings


def learning_rate(step: int, settings: TrainSettings) -> float:
    """Linear warm-up to the peak, then a cosine down to `min_lr_share` of it at the last step."""
    peak, warmup = settings.learning_rate, settings.warmup_steps
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, settings.steps - warmup)
    floor = settings.min_lr_share
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))


def make_optimizers(module: nn.Module, settings: TrainSettings) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the matrices; gains are never decayed.

    Muon's updates are scaled to the size of AdamW's, so one learning rate serves both.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.ndim == 2]
    gains = [p for p in parameters if p.ndim != 2]
    rate, decay = settings.learning_rate, settings.weight_decay
    betas = (0.9, settings.beta2)
    if settings.optimizer == "adamw":
        groups = [
            {"params": matrices, "weight_decay": decay},
            {"params": gains, "weight_decay": 0.0},
        ]
        return [torch.optim.AdamW(groups, lr=rate, betas=betas, fused=True)]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(gains, lr=rate, betas=betas, weight_decay=0.0, fused=True),
    ]
