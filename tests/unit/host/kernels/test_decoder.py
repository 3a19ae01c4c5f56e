"""A decoder in one call: the bits of its kernels called one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from jetspec_sglang.host.kernels import DTYPES, MaskMode, attention, linear, pack, pointwise
from jetspec_sglang.host.kernels.decoder import Affine, Context, Decoder, Layer, Requests, Shape

SHAPE = Shape(
    hidden=64, heads=4, kv_heads=2, head_dim=32, inner=96, rotary_dim=32,
    eps=1e-5, head_eps=1e-6, scale=32**-0.5,
)  # fmt: skip
SLOTS, POSITIONS, LAYERS = 64, 40, 3
PREFIX = torch.tensor([3, 0, 5])
STARTS = torch.tensor([0, 4, 5, 8])
PARENTS = torch.tensor([-1, 0, 0, 2, -1, -1, 0, 1])
DEPTHS = torch.tensor([0, 1, 1, 2, 0, 0, 1, 2])


@dataclass
class Model:
    """Random weights, the pool, and the decoder made of them."""

    layers: list[Layer]
    norm: torch.Tensor
    cos_sin: torch.Tensor
    pool: list[tuple[torch.Tensor, torch.Tensor]]
    decoder: Decoder


def model(dtype: torch.dtype, *, heads_normed: bool = False, biases: bool = False) -> Model:
    generator = torch.Generator().manual_seed(11)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    def affine(outputs: int, inputs: int) -> Affine:
        weight = normal(outputs, inputs) * inputs**-0.5
        return Affine(pack(weight), normal(outputs) if biases else None)

    s = SHAPE
    query, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    layers = [
        Layer(
            input_norm=normal(s.hidden),
            qkv=affine(query + 2 * kv, s.hidden),
            query_norm=normal(s.head_dim) if heads_normed else None,
            key_norm=normal(s.head_dim) if heads_normed else None,
            output=affine(s.hidden, query),
            post_norm=normal(s.hidden),
            gate_up=affine(2 * s.inner, s.hidden),
            down=affine(s.hidden, s.inner),
        )
        for _ in range(LAYERS)
    ]
    norm, cos_sin = normal(s.hidden), normal(POSITIONS, s.rotary_dim)
    row = (SLOTS, s.kv_heads, s.head_dim)
    pool = [(normal(*row), normal(*row)) for _ in range(LAYERS)]
    decoder = Decoder(s, layers, norm, cos_sin)
    decoder.use_pool(pool)
    return Model(layers, norm, cos_sin, pool, decoder)


def requests(mode: MaskMode) -> Requests:
    order = torch.randperm(SLOTS, generator=torch.Generator().manual_seed(3)).int().view(4, 16)
    indices = torch.tensor([2, 0, 3])
    counts = STARTS.diff()
    places = torch.cat([torch.arange(int(n)) for n in counts])
    owner = torch.arange(3).repeat_interleave(counts)
    tree = mode is MaskMode.TREE
    return Requests(
        positions=PREFIX[owner] + (DEPTHS if tree else places),
        slots=order[indices[owner], PREFIX[owner] + places].long(),
        req_to_token=order,
        req_pool_indices=indices,
        prefix_lens=PREFIX,
        row_starts=STARTS,
        parents=PARENTS if tree else None,
        mode=mode,
    )


def one_by_one(m: Model, x: torch.Tensor, r: Requests) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The output, and what enters each layer; fills m.pool like a forward."""
    s, rows = SHAPE, x.shape[0]
    query, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    added, residual, entered = x, None, []
    for layer, (keys, values) in zip(m.layers, m.pool, strict=True):
        normed, total = pointwise.rms_norm(added, residual, layer.input_norm, s.eps)
        residual = added if total is None else total
        entered.append(residual)
        qkv = linear(normed, layer.qkv.weight, layer.qkv.bias)
        q, k, v = qkv.split([query, kv, kv], dim=-1)
        if layer.query_norm is not None:
            q = pointwise.rms_norm(q.reshape(-1, s.head_dim), None, layer.query_norm, s.head_eps)[0]
            k = pointwise.rms_norm(k.reshape(-1, s.head_dim), None, layer.key_norm, s.head_eps)[0]
        q, k = q.reshape(rows, query).clone(), k.reshape(rows, kv).clone()
        pointwise.rotate(q, r.positions, m.cos_sin, s.head_dim)
        pointwise.rotate(k, r.positions, m.cos_sin, s.head_dim)
        keys[r.slots] = k.view(rows, s.kv_heads, s.head_dim)
        values[r.slots] = v.reshape(rows, s.kv_heads, s.head_dim)
        mixed = torch.empty(rows, s.heads, s.head_dim, dtype=x.dtype)
        attention(
            q.view(rows, s.heads, s.head_dim), keys, values, mixed, r.req_to_token,
            r.req_pool_indices, r.prefix_lens, r.row_starts, r.parents, r.mode, s.scale,
        )  # fmt: skip
        added = linear(mixed.view(rows, query), layer.output.weight, layer.output.bias)
        normed, residual = pointwise.rms_norm(added, residual, layer.post_norm, s.eps)
        active = pointwise.silu_and_mul(linear(normed, layer.gate_up.weight, layer.gate_up.bias))
        added = linear(active, layer.down.weight, layer.down.bias)
    return pointwise.rms_norm(added, residual, m.norm, s.eps)[0], entered


def x_of(dtype: torch.dtype, rows: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(rows, SHAPE.hidden, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", [MaskMode.CAUSAL, MaskMode.TREE])
@pytest.mark.parametrize("options", [{}, {"heads_normed": True}, {"biases": True}])
def test_equals_its_kernels_one_by_one(
    dtype: torch.dtype, mode: MaskMode, options: dict[str, bool]
) -> None:
    ours, theirs = model(dtype, **options), model(dtype, **options)
    x, r = x_of(dtype), requests(mode)
    before = x.clone()
    expected, entered = one_by_one(theirs, x, r)
    found, tapped = ours.decoder.forward(x, r, [0, 2])
    assert torch.equal(found, expected)
    assert torch.equal(tapped, torch.cat([entered[0], entered[2]], dim=-1))
    for our_buffers, their_buffers in zip(ours.pool, theirs.pool, strict=True):
        assert all(map(torch.equal, our_buffers, their_buffers))
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_prefill_of_many_rows_equals_its_parts(dtype: torch.dtype) -> None:
    """More rows than an MLP takes at a time; a second, shorter call finds the memory used."""
    rows = 1100
    m = model(dtype)
    row = (2048, SHAPE.kv_heads, SHAPE.head_dim)
    m.decoder.use_pool(
        [(torch.zeros(row, dtype=dtype), torch.zeros(row, dtype=dtype)) for _ in range(LAYERS)]
    )
    x = x_of(dtype, rows)

    def forward(first: int, last: int) -> torch.Tensor:
        slots = torch.arange(first, last)
        r = Requests(
            positions=slots % POSITIONS,
            slots=slots,
            req_to_token=torch.arange(2048, dtype=torch.int32)[None],
            req_pool_indices=torch.tensor([0]),
            prefix_lens=torch.tensor([first]),
            row_starts=torch.tensor([0, last - first]),
            parents=None,
            mode=MaskMode.CAUSAL,
        )
        return m.decoder.forward(x[first:last], r, [])[0]

    whole = forward(0, rows)
    assert torch.equal(forward(0, 700), whole[:700])
    assert torch.equal(forward(700, rows), whole[700:])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biases", [False, True])
def test_a_head_keeps_of_taps_what_its_kernels_one_by_one_keep(
    dtype: torch.dtype, biases: bool
) -> None:
    m = model(dtype, heads_normed=True, biases=biases)
    generator = torch.Generator().manual_seed(12)
    s, kv = SHAPE, SHAPE.kv_heads * SHAPE.head_dim

    def affine(outputs: int, inputs: int) -> Affine:
        weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
        return Affine(pack(weight), torch.ones(outputs, dtype=dtype) if biases else None)

    layers = [replace(layer, context_kv=affine(2 * kv, s.hidden)) for layer in m.layers]
    context = Context(affine(s.hidden, 3 * s.hidden), m.norm)
    head = Decoder(s, layers, m.norm, m.cos_sin, context)
    row = (SLOTS, s.kv_heads, s.head_dim)
    pool = [(torch.zeros(row, dtype=dtype), torch.zeros(row, dtype=dtype)) for _ in layers]
    head.use_pool(pool)
    taps = torch.randn(5, 3 * s.hidden, generator=generator).to(dtype)
    positions, slots = torch.tensor([4, 5, 0, 9, 1]), torch.tensor([7, 3, 60, 0, 21])
    head.feed(taps, positions, slots)

    projected = linear(taps, context.fc.weight, context.fc.bias)
    normed = pointwise.rms_norm(projected, None, context.norm, s.eps)[0]
    for layer, (keys, values) in zip(layers, pool, strict=True):
        both = linear(normed, layer.context_kv.weight, layer.context_kv.bias)
        k = pointwise.rms_norm(
            both[:, :kv].reshape(-1, s.head_dim), None, layer.key_norm, s.head_eps
        )[0].view(5, kv)
        pointwise.rotate(k, positions, m.cos_sin, s.head_dim)
        assert torch.equal(keys[slots], k.view(5, *row[1:]))
        assert torch.equal(values[slots], both[:, kv:].reshape(5, *row[1:]))
        assert int((keys != 0).any(-1).any(-1).sum()) == 5, "no other slot is touched"

    with pytest.raises(ValueError, match="of width 192"):
        head.feed(taps[:, 1:], positions, slots)
    with pytest.raises(ValueError, match=r"must be int64 \[5\]"):
        head.feed(taps, positions[1:], slots)
    with pytest.raises(IndexError, match="rotary"):
        head.feed(taps, positions + POSITIONS, slots)
    with pytest.raises(ValueError, match="no context"):
        m.decoder.feed(taps, positions, slots)
    with pytest.raises(ValueError, match="must have context_kv"):
        Decoder(s, m.layers, m.norm, m.cos_sin, context)


def test_refuses_what_does_not_fit() -> None:
    m, r = model(torch.float32), requests(MaskMode.CAUSAL)
    with pytest.raises(ValueError, match=r"must be torch\.float32 of width 64"):
        m.decoder.forward(x_of(torch.bfloat16), r, [])
    with pytest.raises(ValueError, match=r"must be int64 \[7\]"):
        m.decoder.forward(x_of(torch.float32, 7), r, [])
    far = replace(r, positions=r.positions + POSITIONS)
    with pytest.raises(IndexError, match="rotary"):
        m.decoder.forward(x_of(torch.float32), far, [])
    with pytest.raises(ValueError, match="rows of the requests"):
        m.decoder.forward(x_of(torch.float32), replace(r, row_starts=STARTS + 1), [])
    with pytest.raises(ValueError, match=r"3 contiguous torch\.float32 buffers"):
        m.decoder.use_pool(m.pool[:2])
    with pytest.raises(ValueError, match="has no pool"):
        Decoder(SHAPE, m.layers, m.norm, m.cos_sin).forward(x_of(torch.float32), r, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inner": 64}, "layer 0: gate_up is"),
        ({"rotary_dim": 16}, r"cos_sin|multiples"),
        ({"heads": 3}, "layer 0: qkv is"),
    ],
)
def test_refuses_weights_of_another_shape(change: dict[str, int], message: str) -> None:
    m = model(torch.float32)
    with pytest.raises(ValueError, match=message):
        Decoder(replace(SHAPE, **change), m.layers, m.norm, m.cos_sin)


def test_refuses_one_norm_of_the_heads_alone() -> None:
    m = model(torch.float32, heads_normed=True)
    layers = [replace(m.layers[0], key_norm=None)]
    with pytest.raises(ValueError, match="both have a norm, or neither"):
        Decoder(SHAPE, layers, m.norm, m.cos_sin)
