"""Linear layers in float32 and bfloat16 whose rows have the same bits in any batch. No I/O.

Every output is one chain of steps over the inputs, first to last, summed in float32 and rounded
once. So the rows that a tree verifies get exactly the numbers that decoding them one at a time
would get.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import torch

from jetspec_sglang.host.kernels.library import dense_rows, load


class Dot(IntEnum):
    """How the products of a step are added. A process uses one of them for each dtype."""

    FLOAT = 0  # float32: one fused multiply-add
    WIDENED = 1  # bfloat16 widened to float32: two fused multiply-adds
    PAIRS = 2  # bfloat16: AVX512-BF16's VDPBF16PS
    TILES = 3  # bfloat16: AMX's TDPBF16PS, a block of 32 inputs at once


_DOTS = {torch.float32: (Dot.FLOAT,), torch.bfloat16: (Dot.TILES, Dot.PAIRS, Dot.WIDENED)}
"""Fastest first."""
DTYPES = tuple(_DOTS)
_INPUTS = {torch.float32: 1, torch.bfloat16: 2}
"""Inputs of a step."""


@cache
def dots(dtype: torch.dtype) -> tuple[Dot, ...]:
    """What this process can use for a dtype of `DTYPES`, fastest first."""
    return tuple(dot for dot in _DOTS[dtype] if load().jetspec_linear_has(dot))


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight [outputs, inputs] in the order in which `linear` reads it."""

    words: torch.Tensor  # [panels, steps, outputs of a panel, inputs of a step]
    outputs: int
    inputs: int


def pack(weight: torch.Tensor) -> Packed:
    """A weight [outputs, inputs] of a dtype of `DTYPES`, packed for every `Dot` of that dtype.

    Raises:
        ValueError: on another dtype.
    """
    if weight.dtype not in _DOTS:
        raise ValueError(f"weight is {weight.dtype}: it must be one of {_names()}")
    outputs, inputs = weight.shape
    panel, step = load().jetspec_linear_panel(), _INPUTS[weight.dtype]
    words = weight.new_empty(-(-outputs // panel), -(-inputs // step), panel, step)
    weight = weight.detach().contiguous()
    load().jetspec_linear_pack(weight, outputs, inputs, words, dots(weight.dtype)[0])
    return Packed(words, outputs, inputs)


def linear(
    x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None, dot: Dot | None = None
) -> torch.Tensor:
    """x [..., inputs] @ weight.T + bias -> [..., outputs], all of the weight's dtype.

    `dot` is the kind of step: by default the fastest one of this CPU.

    Raises:
        ValueError: on another dtype or width than the weight's, or a `dot` this CPU lacks.
    """
    dtype = packed.words.dtype
    if x.dtype != dtype or x.shape[-1] != packed.inputs:
        raise ValueError(
            f"x is {x.dtype} of width {x.shape[-1]}: it must be {dtype} of width {packed.inputs}"
        )
    if bias is not None and (bias.dtype, *bias.shape) != (dtype, packed.outputs):
        raise ValueError(
            f"bias is {bias.dtype} {list(bias.shape)}: it must be {dtype} [{packed.outputs}]"
        )
    allowed = dots(dtype)
    if dot is not None and dot not in allowed:
        names = ", ".join(one.name for one in allowed)
        raise ValueError(f"dot {dot.name}: on this CPU it must be one of {names} for {dtype}")
    rows = dense_rows(x.reshape(-1, packed.inputs))
    out = x.new_empty(rows.shape[0], packed.outputs)
    load().jetspec_linear(
        rows, rows.stride(0), *rows.shape, packed.words, packed.outputs,
        None if bias is None else bias.contiguous(), out, allowed[0] if dot is None else dot,
    )  # fmt: skip
    return out.view(*x.shape[:-1], packed.outputs)


def _names() -> str:
    return ", ".join(map(str, DTYPES))
