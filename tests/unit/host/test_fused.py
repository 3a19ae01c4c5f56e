"""SGLang's layers on the host platform against their own `forward_native`."""

import pytest
import torch

pytest.importorskip("sglang")

from sglang.srt.layers.activation import SiluAndMul
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

from jetspec_sglang.host.fused import _rms_norm, _rotary, _silu_and_mul
from jetspec_sglang.host.kernels import pointwise


@pytest.fixture
def compiled(monkeypatch):
    """Names of the compiled functions that were called."""
    called = []
    for name in ("rms_norm", "silu_and_mul", "rotate"):
        real = getattr(pointwise, name)

        def spy(*args, _name=name, _real=real):
            called.append(_name)
            return _real(*args)

        monkeypatch.setattr(pointwise, name, spy)
    return called


def close(found, native):
    torch.testing.assert_close(found, native, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 64), (2, 3, 64)])
def test_rms_norm(shape, compiled):
    layer = RMSNorm(64, eps=1e-6)
    layer.weight.data.normal_()
    x, residual = torch.randn(shape), torch.randn(shape)
    close(_rms_norm(layer, x), layer.forward_native(x))
    for found, native in zip(
        _rms_norm(layer, x, residual), layer.forward_native(x, residual), strict=True
    ):
        close(found, native)
    assert compiled == ["rms_norm"] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"cast_x_before_out_mul": True},
        {"var_hidden_size": 32},
        {"weight_dtype": torch.bfloat16},
        {"fp32_residual": True},
    ],
)
def test_rms_norm_of_another_kind_is_sglangs_own(options, compiled):
    layer = RMSNorm(64, **options)
    x, residual = torch.randn(3, 64), torch.randn(3, 64)
    for found, native in zip(
        _rms_norm(layer, x, residual), layer.forward_native(x, residual), strict=True
    ):
        assert torch.equal(found, native)
    assert compiled == []


def test_silu_and_mul(compiled):
    x = torch.randn(2, 3, 96)
    layer = SiluAndMul.__new__(SiluAndMul)
    close(_silu_and_mul(layer, x), SiluAndMul.forward_native(layer, x))
    odd = torch.randn(3, 40)
    assert torch.equal(_silu_and_mul(layer, odd), SiluAndMul.forward_native(layer, odd))
    assert compiled == ["silu_and_mul"]


@pytest.mark.parametrize("neox", [True, False])
def test_rotary(neox, compiled):
    layer = RotaryEmbedding(64, 64, 128, 10000, neox, torch.float32)
    positions = torch.tensor([0, 5, 127])
    qkv = torch.randn(3, 5 * 64)
    query, key = qkv[:, :128], qkv[:, 128:192]
    native = layer.forward_native(positions, query.clone(), key.clone())
    found = _rotary(layer, positions, query, key)
    assert torch.equal(found[0], native[0])
    assert torch.equal(found[1], native[1])
    assert compiled == (["rotate"] * 2 if neox else [])


def test_no_rows_stay_no_rows(compiled):
    layer = RMSNorm(64, eps=1e-6)
    assert _rms_norm(layer, torch.empty(0, 64)).shape == (0, 64)
    assert _silu_and_mul(SiluAndMul(), torch.empty(0, 128)).shape == (0, 64)
