"""Pre-packed weights for every dense linear of a model, LM head included.

Packing reorders a weight once, so a GEMM of few rows does not reorder (or stream badly) each time:
so 16 rows cost little more than one. float32 and bfloat16 run on the package's own kernel, whose
rows have the same bits in any batch; float16 runs on oneDNN, whose rows do not. The unpacked weight
stays, because embeddings are tied to LM heads. A running server's weights do not change (`weights`
refuses it), so a weight is packed once.
"""

from __future__ import annotations

import logging
from functools import cache

import torch
from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.unquant import (
    UnquantizedEmbeddingMethod,
    UnquantizedLinearMethod,
)
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from torch import nn

from jetspec_sglang.host import kernels

logger = logging.getLogger(__name__)

_BATCH_HINT = 16  # rows oneDNN picks its blocking for; other row counts still work
_ONEDNN_DTYPE = torch.float16


class PackedWeight:
    """One weight `[out, in]`, packed."""

    __slots__ = ("_onednn", "dtype", "kernel")

    def __init__(self, source: torch.Tensor) -> None:
        weight = source.detach().contiguous()
        self.dtype = weight.dtype
        self.kernel = kernels.pack(weight) if weight.dtype in kernels.DTYPES else None
        if self.kernel is None:
            self._onednn = torch.ops.mkldnn._reorder_linear_weight.default(weight, _BATCH_HINT)

    def linear(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """`x @ weight.T + bias`; x `[..., in]` in the weight's dtype -> `[..., out]`."""
        if self.kernel is not None:
            return kernels.linear(x, self.kernel, bias)
        return torch.ops.mkldnn._linear_pointwise.default(x, self._onednn, bias, "none", [], "")


class PackedLinearMethod(UnquantizedLinearMethod):
    """SGLang's unquantised linear method, computing with packed weights."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.packed = PackedWeight(weight)

    def apply(
        self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.packed.linear(x, bias)


class PackedLMHeadMethod(UnquantizedEmbeddingMethod):
    """LM-head scoring with packed weights; embedding look-ups keep the plain weight.

    SGLang takes an LM head's method only when its class name is not one of its own
    unquantised ones, which this name is not.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.packed = PackedWeight(weight)

    def apply(
        self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.packed.linear(x.to(self.packed.dtype), bias)


class PackedLinear(nn.Linear):
    """`nn.Linear` computing with packed weights (the head's `fc`)."""

    packed: PackedWeight

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.packed.linear(input, self.bias)


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Whether this dtype can be packed on this CPU (float16 needs recent instructions)."""
    if dtype in kernels.DTYPES:
        return True
    if dtype != _ONEDNN_DTYPE:
        return False
    try:
        torch.ops.mkldnn._reorder_linear_weight.default(
            torch.zeros(16, 16, dtype=dtype), _BATCH_HINT
        )
    except RuntimeError:
        return False
    return True


def pack_linears(model: nn.Module) -> int:
    """Make every unquantised dense linear layer of `model` compute with packed weights.

    Returns the number of layers packed; layers of a dtype that the CPU cannot pack stay unpacked,
    which is correct but slower. The log says so once.
    """
    packed = 0
    refused: set[torch.dtype] = set()
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
            continue
        is_linear = isinstance(module, LinearBase) and (
            type(module.quant_method) is UnquantizedLinearMethod
        )
        is_head = isinstance(module, ParallelLMHead) or _is_tied_head(model, module)
        is_plain = type(module) is nn.Linear
        if not (is_linear or is_head or is_plain):
            continue
        if not can_pack(weight.dtype):
            refused.add(weight.dtype)
            continue
        if is_linear:
            module.quant_method = PackedLinearMethod(weight)
        elif is_head:
            module.quant_method = PackedLMHeadMethod(weight)
        else:
            module.__class__ = PackedLinear
            module.__dict__["packed"] = PackedWeight(weight)
        packed += 1
    for dtype in refused:
        logger.warning("oneDNN cannot pack %s on this CPU; its linear layers run unpacked", dtype)
    return packed


def _is_tied_head(model: nn.Module, module: nn.Module) -> bool:
    """A model with tied embeddings uses its embedding module as LM head."""
    return isinstance(module, VocabParallelEmbedding) and (
        getattr(model, "lm_head", None) is module
    )
