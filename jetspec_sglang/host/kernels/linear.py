"""Linear layers in float32 whose rows have the same bits in any batch. No I/O.

Every output is one chain of fused multiply-adds over the inputs, first to last. So the rows that a
tree verifies get exactly the numbers that decoding them one at a time would get.
"""

from __future__ import annotations

import torch

from jetspec_sglang.host.kernels.library import dense_rows, load


def pack(weight: torch.Tensor) -> torch.Tensor:
    """A weight [out, in], float32 on the CPU, in the layout `linear` reads."""
    outputs, inputs = weight.shape
    panel = load().jetspec_linear_panel()
    packed = torch.empty(-(-outputs // panel), inputs, panel)
    weight = weight.detach().contiguous()
    load().jetspec_linear_pack(weight, outputs, inputs, packed)
    return packed


def linear(
    x: torch.Tensor, packed: torch.Tensor, outputs: int, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """x [..., in] @ weight.T + bias -> [..., outputs]; `packed` is `pack(weight)`.

    Raises:
        ValueError: on a type that is not float32 or a width that is not the weight's.
    """
    if x.dtype != torch.float32 or x.shape[-1] != packed.shape[1]:
        raise ValueError(
            f"x is {x.dtype} of width {x.shape[-1]}: it must be float32 of width {packed.shape[1]}"
        )
    if bias is not None and (bias.dtype, *bias.shape) != (torch.float32, outputs):
        raise ValueError(f"bias is {bias.dtype} {list(bias.shape)}: must be float32 [{outputs}]")
    rows = dense_rows(x.reshape(-1, x.shape[-1]))
    out = torch.empty(rows.shape[0], outputs)
    load().jetspec_linear(
        rows, rows.stride(0), *rows.shape, packed.contiguous(), outputs,
        None if bias is None else bias.contiguous(), out,
    )  # fmt: skip
    return out.view(*x.shape[:-1], outputs)
