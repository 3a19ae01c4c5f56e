"""The linear kernel: right, and with the same bits for a row in any company, whatever the dtype."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.host.kernels import DTYPES, Dot, dots, linear, pack, set_threads

KINDS = [(dtype, dot) for dtype in DTYPES for dot in dots(dtype)]
"""Every way of this CPU."""
each_kind = pytest.mark.parametrize(("dtype", "dot"), KINDS, ids=lambda one: str(one))


def tensors(
    rows: int, inputs: int, outputs: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + 1000 * inputs + outputs)
    return (
        torch.randn(rows, inputs, generator=generator).to(dtype),
        torch.randn(outputs, inputs, generator=generator).to(dtype),
    )


@each_kind
@given(
    rows=st.integers(0, 70),
    inputs=st.integers(1, 130),
    outputs=st.integers(1, 130),
    with_bias=st.booleans(),
)
def test_equals_a_float64_product(
    dtype: torch.dtype, dot: Dot, rows: int, inputs: int, outputs: int, with_bias: bool
) -> None:
    x, weight = tensors(rows, inputs, outputs, dtype)
    bias = torch.arange(outputs).to(dtype) if with_bias else None
    found = linear(x, pack(weight), bias, dot)
    wanted = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    # A chain of n steps is off by at most n roundings of the sum of absolute products.
    bound = (x.abs().double() @ weight.abs().double().T + outputs) * 2**-24 * (inputs + 1)
    # The result is then rounded once.
    bound = bound + (wanted.abs() + bound) * (0 if dtype == torch.float32 else 2**-8)
    assert found.shape == (rows, outputs)
    assert found.dtype == dtype
    assert bool(((found.double() - wanted).abs() <= bound).all())


@each_kind
@given(rows=st.integers(2, 300), inputs=st.integers(1, 600), outputs=st.integers(1, 200))
def test_a_row_has_the_same_bits_alone_and_in_any_batch(
    dtype: torch.dtype, dot: Dot, rows: int, inputs: int, outputs: int
) -> None:
    x, weight = tensors(rows, inputs, outputs, dtype)
    packed = pack(weight)
    together = linear(x, packed, dot=dot)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(linear(x[row : row + 1], packed, dot=dot)[0], together[row])
    assert torch.equal(linear(x[: rows // 2], packed, dot=dot), together[: rows // 2])


@each_kind
@pytest.mark.parametrize("rows", [1, 3, 16, 100])
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype, dot: Dot, rows: int) -> None:
    x, weight = tensors(rows, 576, 960, dtype)
    packed = pack(weight)
    try:
        set_threads(1)
        alone = linear(x, packed, dot=dot)
        set_threads(2)
        assert torch.equal(linear(x, packed, dot=dot), alone)
    finally:
        set_threads(None)


@each_kind
def test_takes_rows_of_a_wider_tensor_and_more_dimensions(dtype: torch.dtype, dot: Dot) -> None:
    x, weight = tensors(6, 63, 40, dtype)
    packed = pack(weight)
    expected = linear(x, packed, dot=dot)
    wide = torch.full((6, 100), float("nan"), dtype=dtype)
    wide[:, :63] = x
    assert torch.equal(linear(wide[:, :63], packed, dot=dot), expected)
    assert torch.equal(linear(x.view(2, 3, 63), packed, dot=dot), expected.view(2, 3, 40))
    assert torch.equal(linear(x.T.contiguous().T, packed, dot=dot), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_packs_a_view_of_a_weight(dtype: torch.dtype) -> None:
    x, weight = tensors(4, 32, 48, dtype)
    assert torch.equal(linear(x, pack(weight.T.contiguous().T)), linear(x, pack(weight)))


@each_kind
def test_nan_and_infinity_stay_in_their_row(dtype: torch.dtype, dot: Dot) -> None:
    x, weight = tensors(3, 16, 20, dtype)
    packed = pack(weight)
    clean = linear(x, packed, dot=dot)
    x[1, 5] = float("nan")
    found = linear(x, packed, dot=dot)
    assert bool(found[1].isnan().all())
    assert torch.equal(found[[0, 2]], clean[[0, 2]])


def test_the_fastest_way_of_this_cpu_is_the_default() -> None:
    x, weight = tensors(3, 17, 20, torch.bfloat16)
    fastest = dots(torch.bfloat16)[0]
    assert torch.equal(linear(x, pack(weight)), linear(x, pack(weight), dot=fastest))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("x", "bias"),
    [
        (torch.zeros(2, 8, dtype=torch.float16), None),
        (torch.zeros(2, 9), None),
        (torch.zeros(2, 7), None),
        (torch.zeros(2, 8), torch.zeros(3)),
        (torch.zeros(2, 8), torch.zeros(4, dtype=torch.float64)),
    ],
)
def test_refuses_what_does_not_fit(
    dtype: torch.dtype, x: torch.Tensor, bias: torch.Tensor | None
) -> None:
    x = x if x.dtype == torch.float16 else x.to(dtype)
    bias = bias if bias is None or bias.dtype == torch.float64 else bias.to(dtype)
    with pytest.raises(ValueError, match=f"must be {dtype}"):
        linear(x, pack(torch.zeros(4, 8, dtype=dtype)), bias)


def test_refuses_another_dtype_and_another_dtypes_way() -> None:
    with pytest.raises(ValueError, match=r"weight is torch\.float16: .* torch\.bfloat16"):
        pack(torch.zeros(4, 8, dtype=torch.float16))
    with pytest.raises(ValueError, match="dot WIDENED: on this CPU it must be one of FLOAT"):
        linear(torch.zeros(2, 8), pack(torch.zeros(4, 8)), dot=Dot.WIDENED)
