"""The compiled layers against torch's float64 arithmetic; rows independent of each other."""

import pytest
import torch

from jetspec_sglang.host.kernels.pointwise import rms_norm, rotate, silu_and_mul

TYPES = (torch.float32, torch.bfloat16, torch.float16)
EPSILON = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}
DIM = 576


def normal(*shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(found, exact):
    torch.testing.assert_close(
        found, exact.to(found.dtype), rtol=EPSILON[found.dtype], atol=EPSILON[found.dtype]
    )


def exact_norm(x, weight, eps):
    x = x.double()
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dim", [16, 64, DIM])
def test_rms_norm_with_and_without_residual(dtype, dim):
    x, residual = normal(5, dim, dtype=dtype), normal(5, dim, dtype=dtype, seed=1)
    weight = normal(dim, dtype=dtype, seed=2)
    out, total = rms_norm(x, None, weight, 1e-5)
    assert total is None
    assert_near(out, exact_norm(x, weight, 1e-5))
    out, total = rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, (x.float() + residual.float()).to(dtype))
    assert_near(out, exact_norm(x.float() + residual.float(), weight, 1e-5))


@pytest.mark.parametrize("dtype", TYPES)
def test_silu_and_mul_over_the_whole_range(dtype):
    gate = torch.linspace(-100, 100, 4 * DIM).view(4, DIM).to(dtype)
    up = normal(4, DIM, dtype=dtype)
    gate64 = gate.double()
    exact = gate64 / (1 + torch.exp(-gate64)) * up.double()
    assert_near(silu_and_mul(torch.cat([gate, up], dim=1)), exact)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rotary_dim", [32, 64])
def test_rotate_a_slice_in_place(dtype, rotary_dim):
    heads, head_dim, rows = 3, 64, 7
    angles = normal(50, rotary_dim // 2, dtype=torch.float32)
    cos_sin = torch.cat([angles.cos(), angles.sin()], dim=1).to(dtype)
    positions = torch.tensor([49, 0, 3, 3, 17, 48, 1])
    whole = normal(rows, 2 * heads * head_dim, dtype=dtype)
    before = whole.clone()
    x = whole[:, : heads * head_dim]
    rotate(x, positions, cos_sin, head_dim)

    assert torch.equal(whole[:, heads * head_dim :], before[:, heads * head_dim :])
    old = before[:, : heads * head_dim].double().view(rows, heads, head_dim)
    cos, sin = cos_sin[positions].double()[:, None].chunk(2, dim=-1)
    a, b = old[..., :rotary_dim].chunk(2, dim=-1)
    exact = torch.cat([a * cos - b * sin, b * cos + a * sin, old[..., rotary_dim:]], dim=-1)
    assert_near(x.reshape(rows, heads, head_dim), exact)


@pytest.mark.parametrize("position", [-1, 4])
def test_an_unknown_position_is_refused_and_nothing_changed(position):
    x = normal(2, 64, dtype=torch.float32)
    before = x.clone()
    with pytest.raises(IndexError, match="from 0 to 3"):
        rotate(x, torch.tensor([0, position]), torch.ones(4, 64), 64)
    assert torch.equal(x, before)


def test_a_rows_bits_do_not_depend_on_its_company():
    """Also across the size from which threads share the rows."""
    rows = 300
    x, residual = normal(rows, DIM, dtype=torch.float32), normal(rows, DIM, dtype=torch.float32)
    weight = normal(DIM, dtype=torch.float32)
    out, total = rms_norm(x, residual, weight, 1e-5)
    products = silu_and_mul(x)
    for row in (0, 123, 299):
        one = slice(row, row + 1)
        alone = rms_norm(x[one], residual[one], weight, 1e-5)
        assert torch.equal(alone[0], out[one])
        assert torch.equal(alone[1], total[one])
        assert torch.equal(silu_and_mul(x[one]), products[one])


def test_no_rows():
    empty = torch.empty(0, DIM)
    assert rms_norm(empty, None, torch.ones(DIM), 1e-5)[0].shape == (0, DIM)
    assert silu_and_mul(empty).shape == (0, DIM // 2)
