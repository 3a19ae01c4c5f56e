"""Distillation losses over a frozen output matrix, in bounded memory.

Contract: pure. Logits of `chunk` rows at a time exist; their gradient is taken in closed form while
they do, so nothing of size rows x vocabulary is kept for the backward pass. The output matrix gets
no gradient.

Per row, with student p, teacher q, both softmax(logits / T):
- forward_kl: T² · Σ q (log q - log p), gradient T (p - q) by the student's logits
- reverse_kl: T² · Σ p (log p - log q), gradient T p (log p - log q - KL)
- sft: -log p[label] at T = 1, gradient p - onehot(label)
(Paper arXiv 2606.18394 uses T²-scaled forward KL; the other two are its ablations.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jetspec_sglang.training.loss_names import Loss


def depth_weights(depths: int, gamma: float) -> Tensor:
    """exp(-(k - 1) / gamma) for k = 1..depths; gamma 0 weighs every depth alike."""
    if gamma == 0:
        return torch.ones(depths)
    return torch.exp(-torch.arange(depths) / gamma)


class _RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        lm_head: Tensor,
        teacher: Tensor | None,
        labels: Tensor,
        weights: Tensor,
        parts: dict[Loss, float],
        temperature: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        total = states.new_zeros((), dtype=torch.promote_types(states.dtype, torch.float32))
        best = torch.empty(len(states), dtype=torch.int64, device=states.device)
        gradient = torch.empty_like(states)
        with torch.autocast(states.device.type, enabled=False):
            for start in range(0, len(states), chunk):
                part = slice(start, start + chunk)
                logits = _logits(states[part], lm_head)
                best[part] = logits.argmax(dim=-1)
                teacher_logits = None if teacher is None else _logits(teacher[part], lm_head)
                value, slope = row_loss(logits, teacher_logits, labels[part], parts, temperature)
                total += (value * weights[part]).sum()
                slope *= weights[part, None]
                gradient[part] = (slope.to(lm_head.dtype) @ lm_head).to(states.dtype)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(best)
        return total, best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0], None, None, None, None, None, None, None


def _logits(states: Tensor, lm_head: Tensor) -> Tensor:
    logits = states.to(lm_head.dtype) @ lm_head.T
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def row_loss(
    logits: Tensor,
    teacher_logits: Tensor | None,
    labels: Tensor,
    parts: dict[Loss, float],
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Loss [R] and its gradient by `logits` [R, V]; `parts` weighs the losses that are mixed.

    A label of -1 (the token is not in the draft vocabulary) adds no sft loss.
    """
    value = logits.new_zeros(len(logits))
    slope: Tensor | None = None
    if "forward_kl" in parts or "reverse_kl" in parts:
        if teacher_logits is None:
            raise ValueError("a KL loss needs the teacher's states")
        value, slope = _kl(logits / temperature, teacher_logits / temperature, parts)
        value *= temperature**2
        slope *= temperature
    if "sft" in parts:
        weight = parts["sft"] * (labels >= 0).to(logits.dtype)
        p, lse = _softmax(logits)
        at = labels.clamp_min(0)[:, None]
        value += weight * (lse - logits.gather(1, at)[:, 0])
        p *= weight[:, None]
        p.scatter_add_(1, at, -weight[:, None])
        slope = p if slope is None else slope.add_(p)
    assert slope is not None
    return value, slope


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """softmax [R, V] and log-sum-exp [R], the latter from the largest entry of the former."""
    p = logits.softmax(dim=-1)
    best, at = p.max(dim=-1, keepdim=True)
    return p, (logits.gather(1, at) - best.log())[:, 0]


def _kl(student: Tensor, teacher: Tensor, parts: dict[Loss, float]) -> tuple[Tensor, Tensor]:
    """Weighted KLs [R] of logits that are already divided by T, and the gradient by `student`."""
    p, student_lse = _softmax(student)
    q, teacher_lse = _softmax(teacher)
    gap = student - teacher
    gap -= (student_lse - teacher_lse)[:, None]
    forward, reverse = parts.get("forward_kl", 0.0), parts.get("reverse_kl", 0.0)
    value = -forward * torch.linalg.vecdot(q, gap)
    slope = (p - q).mul_(forward)
    if reverse:
        divergence = torch.linalg.vecdot(p, gap)
        value += reverse * divergence
        slope.add_(p * (gap - divergence[:, None]), alpha=reverse)
    return value, slope


def distillation_loss(
    states: Tensor,
    lm_head: Tensor,
    teacher: Tensor | None,
    labels: Tensor,
    weights: Tensor,
    parts: dict[Loss, float],
    temperature: float = 1.0,
    chunk: int = 256,
) -> tuple[Tensor, Tensor]:
    """Weighted sum of row losses, and each row's most likely column.

    states, teacher [R, H] (the head's and the target's last hidden states), lm_head [V, H],
    labels int64 [R] (columns of lm_head, -1 = none), weights [R]. Matmuls run in lm_head's dtype.
    """
    return _RowLoss.apply(states, lm_head, teacher, labels, weights, parts, temperature, chunk)
