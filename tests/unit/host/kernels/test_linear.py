"""The float32 linear kernel: right, and with the same bits for a row in any company."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.host.kernels import linear, pack, set_threads


def tensors(rows: int, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + 1000 * inputs + outputs)
    return (
        torch.randn(rows, inputs, generator=generator),
        torch.randn(outputs, inputs, generator=generator),
    )


@given(
    rows=st.integers(0, 70),
    inputs=st.integers(1, 130),
    outputs=st.integers(1, 130),
    with_bias=st.booleans(),
)
def test_equals_a_float64_product(rows: int, inputs: int, outputs: int, with_bias: bool) -> None:
    x, weight = tensors(rows, inputs, outputs)
    bias = torch.arange(outputs, dtype=torch.float32) if with_bias else None
    found = linear(x, pack(weight), outputs, bias)
    wanted = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    # An fma chain of n steps is off by at most n roundings of the sum of absolute products.
    bound = (x.abs().double() @ weight.abs().double().T + outputs) * 2**-24 * (inputs + 1)
    assert found.shape == (rows, outputs)
    assert bool(((found.double() - wanted).abs() <= bound).all())


@given(rows=st.integers(2, 80), inputs=st.integers(1, 600), outputs=st.integers(1, 200))
def test_a_row_has_the_same_bits_alone_and_in_any_batch(
    rows: int, inputs: int, outputs: int
) -> None:
    x, weight = tensors(rows, inputs, outputs)
    packed = pack(weight)
    together = linear(x, packed, outputs)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(linear(x[row : row + 1], packed, outputs)[0], together[row])
    assert torch.equal(linear(x[: rows // 2], packed, outputs), together[: rows // 2])


@pytest.mark.parametrize("rows", [1, 3, 16, 100])
def test_the_number_of_threads_changes_no_bit(rows: int) -> None:
    x, weight = tensors(rows, 576, 960)
    packed = pack(weight)
    try:
        set_threads(1)
        alone = linear(x, packed, 960)
        set_threads(2)
        assert torch.equal(linear(x, packed, 960), alone)
    finally:
        set_threads(None)


def test_takes_rows_of_a_wider_tensor_and_more_dimensions() -> None:
    x, weight = tensors(6, 64, 40)
    packed = pack(weight)
    wide = torch.zeros(6, 100)
    wide[:, :64] = x
    assert torch.equal(linear(wide[:, :64], packed, 40), linear(x, packed, 40))
    assert torch.equal(linear(x.view(2, 3, 64), packed, 40), linear(x, packed, 40).view(2, 3, 40))
    assert torch.equal(linear(x.T.contiguous().T, packed, 40), linear(x, packed, 40))


def test_packs_a_view_of_a_weight() -> None:
    x, weight = tensors(4, 32, 48)
    assert torch.equal(linear(x, pack(weight.T.contiguous().T), 48), linear(x, pack(weight), 48))


def test_nan_and_infinity_stay_in_their_row() -> None:
    x, weight = tensors(3, 16, 20)
    packed = pack(weight)
    clean = linear(x, packed, 20)
    x[1, 5] = float("nan")
    found = linear(x, packed, 20)
    assert bool(found[1].isnan().all())
    assert torch.equal(found[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize(
    ("x", "bias"),
    [
        (torch.zeros(2, 8, dtype=torch.bfloat16), None),
        (torch.zeros(2, 9), None),
        (torch.zeros(2, 8), torch.zeros(3)),
        (torch.zeros(2, 8), torch.zeros(4, dtype=torch.float64)),
    ],
)
def test_refuses_what_does_not_fit(x: torch.Tensor, bias: torch.Tensor | None) -> None:
    with pytest.raises(ValueError, match="must be float32"):
        linear(x, pack(torch.zeros(4, 8)), 4, bias)
