"""RMSNorm, SiLU-and-multiply and rotary embedding as one compiled pass each. No I/O.

A row's result depends on that row alone. Sums and products are float32 and are rounded once, when
stored. `LANES` is what the innermost size of each must be a multiple of.
"""

from __future__ import annotations

import torch

from jetspec_sglang.host.kernels.library import dense_rows, load

TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
LANES = 16


def rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(x + residual) / rms * weight, and x + residual (None without a residual).

    x and residual [rows, dim], weight [dim], all of one type of `TYPES`.
    """
    rows, dim = x.shape
    x, residual = dense_rows(x), None if residual is None else dense_rows(residual)
    out = x.new_empty(x.shape)
    total = None if residual is None else torch.empty_like(out)
    load().jetspec_rms_norm(
        x, x.stride(0),
        residual, 0 if residual is None else residual.stride(0),
        weight.contiguous(), out, total,
        rows, dim, eps, TYPES[x.dtype],
    )  # fmt: skip
    return out, total


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """silu(first half of each row) * second half; x [rows, 2 * dim]."""
    x = dense_rows(x)
    rows, dim = x.shape[0], x.shape[1] // 2
    out = x.new_empty((rows, dim))
    load().jetspec_silu_and_mul(x, x.stride(0), out, rows, dim, TYPES[x.dtype])
    return out


def rotate(x: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor, head_dim: int) -> None:
    """Rotate every head of x [rows, heads * head_dim] in place, halves paired (NeoX).

    positions int64 [rows]; cos_sin [positions, rotary_dim] of x's type: cosines, then sines;
    rotary_dim / 2 must be a multiple of `LANES`.

    Raises: ValueError: if the values of a row of x do not lie side by side. IndexError: if a
    position has no row in cos_sin; x is then unchanged.
    """
    if x.stride(-1) != 1:
        raise ValueError(f"x has strides {x.stride()}: it must be contiguous within a row")
    refused = load().jetspec_rotate(
        x, x.stride(0), x.shape[1] // head_dim, head_dim,
        cos_sin.contiguous(), *cos_sin.shape, positions.contiguous(), x.shape[0], TYPES[x.dtype],
    )  # fmt: skip
    if refused:
        raise IndexError(f"positions must be from 0 to {cos_sin.shape[0] - 1}")
