"""Which of SGLang's models run as one call, and which keep their own layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from sglang.srt.models.llama import LlamaModel

from jetspec_sglang.host import decoder
from jetspec_sglang.host.linear import PackedLinearMethod


def test_only_known_inner_modules_are_changed() -> None:
    other = SimpleNamespace(model=torch.nn.Linear(2, 2))
    own = other.model.forward
    decoder.install(other)  # type: ignore[arg-type]
    decoder.install(torch.nn.Linear(2, 2))
    assert other.model.forward == own
    known = SimpleNamespace(model=LlamaModel.__new__(LlamaModel))
    torch.nn.Module.__init__(known.model)
    decoder.install(known)  # type: ignore[arg-type]
    assert isinstance(known.model.forward, decoder._TargetForward)


def linear(**change: Any) -> Any:
    method = PackedLinearMethod(torch.randn(32, 16))
    return SimpleNamespace(
        **{"quant_method": method, "bias": None, "skip_bias_add": False, **change}
    )


def test_a_packed_linear_is_taken_with_its_bias() -> None:
    bias = torch.ones(32)
    assert decoder._affine(linear()).bias is None
    assert decoder._affine(linear(bias=bias)).bias is not None
    assert decoder._affine(linear(bias=bias, skip_bias_add=True)).bias is None


@pytest.mark.parametrize("method", [None, UnquantizedLinearMethod()])
def test_a_linear_that_is_not_packed_keeps_its_own_layers(method: object) -> None:
    """Quantised weights, and LoRA's wrappers, which have no method of their own."""
    with pytest.raises(decoder.UnsupportedError, match="not packed"):
        decoder._affine(linear(quant_method=method))


@pytest.mark.parametrize(
    "options",
    [{"cast_x_before_out_mul": True}, {"var_hidden_size": 32}, {"fp32_residual": True}, {"eps": 1}],
)
def test_another_kind_of_norm_keeps_its_own_layers(options: dict[str, Any]) -> None:
    assert decoder._norm(RMSNorm(64, eps=1e-6), 1e-6).shape == (64,)
    with pytest.raises(decoder.UnsupportedError, match="RMSNorm"):
        decoder._norm(RMSNorm(64, **{"eps": 1e-6, **options}), 1e-6)


def rotary(**change: Any) -> RotaryEmbedding:
    options = {"is_neox_style": True, "dtype": torch.float32, **change}
    return RotaryEmbedding(32, 32, 64, 10000, **options)


def test_another_rotary_embedding_keeps_its_own_layers() -> None:
    def layers(*rotaries: object) -> list[Any]:
        return [SimpleNamespace(self_attn=SimpleNamespace(rotary_emb=one)) for one in rotaries]

    one = rotary()
    decoder._check_rotary(one, layers(one, one))
    with pytest.raises(decoder.UnsupportedError, match="different"):
        decoder._check_rotary(one, layers(one, rotary()))
    interleaved = rotary(is_neox_style=False)
    with pytest.raises(decoder.UnsupportedError, match="RotaryEmbedding"):
        decoder._check_rotary(interleaved, layers(interleaved))
