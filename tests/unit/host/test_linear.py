"""Packed linears: same results as the unpacked ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from jetspec_sglang.host.linear import PackedLinear, PackedWeight, can_pack, pack_linears

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 16, 33])
def test_packed_equals_unpacked(dtype: torch.dtype, rows: int) -> None:
    weight, x = torch.randn(70, 48).to(dtype), torch.randn(rows, 48).to(dtype)
    bias = torch.randn(70).to(dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(
        PackedWeight(weight).linear(x, bias),
        nn.functional.linear(x, weight, bias),
        rtol=tolerance,
        atol=tolerance,
    )


def test_plain_linears_of_a_model_are_packed_once() -> None:
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8, bias=False))
    x = torch.randn(5, 16)
    before = model(x)
    assert pack_linears(model) == 2
    assert all(isinstance(layer, PackedLinear) for layer in (model[0], model[2]))
    torch.testing.assert_close(model(x), before)
    assert pack_linears(model) == 0


def test_integers_are_not_packed() -> None:
    assert not can_pack(torch.int8)
