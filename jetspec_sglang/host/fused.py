"""SGLang's small layers on the host platform: one compiled pass instead of several torch calls.

Contract: `register_fused_layers` enters them under the platform's dispatch key; if the compiled
version does not support a case, the layer's own `forward_native` is used. They compute what
`forward_native` does, rounded once instead of at each step.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.kernels.fused_op import BaseFusedOp
from sglang.srt.layers.activation import SiluAndMul
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

from jetspec_sglang.host.kernels import pointwise


def register_fused_layers(dispatch_key: str) -> None:
    """Make SGLang use these layers on the platform with this dispatch key."""
    for layer, forward in (
        (RMSNorm, _rms_norm),
        (SiluAndMul, _silu_and_mul),
        (RotaryEmbedding, _rotary),
    ):
        BaseFusedOp.register_oot_forward(layer, forward, dispatch_key)


def _rms_norm(
    layer: RMSNorm,
    x: torch.Tensor,
    residual: torch.Tensor | None = None,
    post_residual_addition: torch.Tensor | None = None,
    quant_linear: Any = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    if (
        post_residual_addition is not None
        or layer.variance_size_override is not None
        or layer.cast_x_before_out_mul
        or layer.fp32_residual
        or layer.override_orig_dtype not in (None, x.dtype)
        or layer.weight.dtype != x.dtype
        or x.shape[-1] != layer.hidden_size
        or not _covered(x)
        or (residual is not None and (residual.dtype, residual.shape) != (x.dtype, x.shape))
    ):
        return layer.forward_native(x, residual, post_residual_addition)
    before = None if residual is None else _rows(residual)
    out, total = pointwise.rms_norm(_rows(x), before, layer.weight, layer.variance_epsilon)
    return out.view(x.shape) if total is None else (out.view(x.shape), total.view(x.shape))


def _silu_and_mul(layer: SiluAndMul, x: torch.Tensor) -> torch.Tensor:
    if x.shape[-1] % (2 * pointwise.LANES) or not _covered(x):
        return layer.forward_native(x)
    return pointwise.silu_and_mul(_rows(x)).view(*x.shape[:-1], x.shape[-1] // 2)


def _rotary(
    layer: RotaryEmbedding,
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    offsets: torch.Tensor | None = None,
    fused_set_kv_buffer_arg: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotates in place, as SGLang's kernels of other platforms do."""
    if (
        offsets is not None
        or fused_set_kv_buffer_arg is not None
        or not layer.is_neox_style
        or layer.rotary_dim % (2 * pointwise.LANES)
        or hasattr(layer, "sin_cos_cache")
        or positions.dtype != torch.int64
        or not _rotatable(layer, positions, query)
        or not _rotatable(layer, positions, key)
    ):
        return layer.forward_native(positions, query, key, offsets, fused_set_kv_buffer_arg)
    positions = positions.contiguous()
    pointwise.rotate(query, positions, layer.cos_sin_cache, layer.head_size)
    pointwise.rotate(key, positions, layer.cos_sin_cache, layer.head_size)
    return query, key


def _rotatable(layer: RotaryEmbedding, positions: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether x is [rows, heads * head_dim] with a position a row, in the cache's type."""
    return (
        x.dim() == 2
        and x.dtype == layer.cos_sin_cache.dtype
        and positions.shape == x.shape[:1]
        and _covered(x)
    )


def _covered(x: torch.Tensor) -> bool:
    return x.dtype in pointwise.TYPES and x.shape[-1] % pointwise.LANES == 0 and x.stride(-1) == 1


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x as [rows, width]; a copy only where its strides do not allow a view."""
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
