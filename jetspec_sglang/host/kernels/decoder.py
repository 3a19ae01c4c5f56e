"""`Decoder`: every layer of a Llama, Qwen2 or Qwen3 model, or draft head, in one call. No I/O.

It computes what the model's layers compute one after another, with the same kernels in the same
order, so every bit is the same. It saves the time between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jetspec_sglang.host.kernels.attention import MaskMode
from jetspec_sglang.host.kernels.library import dense_rows, load
from jetspec_sglang.host.kernels.linear import Packed, dots
from jetspec_sglang.host.kernels.pointwise import LANES, TYPES


@dataclass(frozen=True, slots=True)
class Affine:
    """A packed weight and its bias."""

    weight: Packed
    bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer. Norms of queries and keys: both or neither."""

    input_norm: torch.Tensor  # [hidden]
    qkv: Affine  # [(heads + 2 * kv_heads) * head_dim, hidden]
    query_norm: torch.Tensor | None  # [head_dim]
    key_norm: torch.Tensor | None
    output: Affine  # [hidden, heads * head_dim]
    post_norm: torch.Tensor  # [hidden]
    gate_up: Affine  # [2 * inner, hidden]
    down: Affine  # [hidden, inner]
    context_kv: Affine | None = None  # of a head: [2 * kv_heads * head_dim, hidden]

    def tensors(self) -> list[torch.Tensor | None]:
        """In the order in which the library takes them."""
        context = self.context_kv
        return [
            self.input_norm,
            *(self.qkv.weight.words, self.qkv.bias),
            *(self.query_norm, self.key_norm),
            *(self.output.weight.words, self.output.bias),
            self.post_norm,
            *(self.gate_up.weight.words, self.gate_up.bias),
            *(self.down.weight.words, self.down.bias),
            *((None, None) if context is None else (context.weight.words, context.bias)),
        ]


@dataclass(frozen=True, slots=True)
class Context:
    """How a draft head takes in what the target computed."""

    fc: Affine  # [hidden, taps * hidden]
    norm: torch.Tensor  # [hidden]


@dataclass(frozen=True, slots=True)
class Shape:
    """What all layers have in common."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    rotary_dim: int
    eps: float
    head_eps: float  # of the norms of queries and keys
    scale: float  # of attention scores
    logit_cap: float = 0.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Where the rows of a forward belong. Row layout as in `attention`."""

    positions: torch.Tensor  # int64 [rows]
    slots: torch.Tensor  # int64 [rows], where a row's key and value go
    req_to_token: torch.Tensor  # int32 [R, width]
    req_pool_indices: torch.Tensor  # int64 [bs]
    prefix_lens: torch.Tensor  # int64 [bs]
    row_starts: torch.Tensor  # int64 [bs + 1]
    parents: torch.Tensor | None  # int64 [rows], TREE only
    mode: MaskMode


class Decoder:
    """The layers and the last norm, ready to run. It keeps their tensors alive."""

    def __init__(
        self,
        shape: Shape,
        layers: Sequence[Layer],
        norm: torch.Tensor,
        cos_sin: torch.Tensor,
        context: Context | None = None,
    ) -> None:
        """norm [hidden]; cos_sin [positions, rotary_dim]: cosines, then sines. `context`: of a head,
        whose layers then have `context_kv`.

        Raises:
            ValueError: on a size or dtype that does not fit.
        """
        self._shape = shape
        self.dtype = norm.dtype
        _check(shape, layers, norm, cos_sin, context)
        self._context = context
        self._held: list[object] = [layers, norm, cos_sin]
        self._free = load().jetspec_decoder_free
        self._handle = load().jetspec_decoder_new(
            shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.inner,
            cos_sin, *cos_sin.shape, norm,
            shape.eps, shape.head_eps, shape.scale, shape.logit_cap,
            TYPES[self.dtype], dots(self.dtype)[0],
        )  # fmt: skip
        for layer in layers:
            load().jetspec_decoder_layer(self._handle, *layer.tensors())
        if context is not None:
            load().jetspec_decoder_context(
                self._handle, context.fc.weight.words, context.fc.bias, context.fc.weight.inputs,
                context.norm,
            )  # fmt: skip
        self._layers = len(layers)
        self._pool: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __del__(self) -> None:
        if handle := getattr(self, "_handle", None):
            self._free(handle)

    def use_pool(self, pool: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Keys and values of each layer, [slots, kv_heads, head_dim] each.

        Raises:
            ValueError: on a shape, dtype or stride that does not fit.
        """
        row = (self._shape.kv_heads, self._shape.head_dim)
        if len(pool) != self._layers or any(
            buffer.dtype != self.dtype or buffer.shape[1:] != row or not buffer.is_contiguous()
            for buffers in pool
            for buffer in buffers
        ):
            raise ValueError(
                f"the pool must have {self._layers} contiguous {self.dtype} buffers "
                f"[slots, {row[0]}, {row[1]}] for keys and for values"
            )
        self._pool = list(pool)
        for index, buffers in enumerate(pool):
            load().jetspec_decoder_pool(self._handle, index, *buffers)

    def forward(
        self, x: torch.Tensor, requests: Requests, taps: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """x [rows, hidden] -> the normed output [rows, hidden], and what enters the layers `taps`
        [rows, len(taps) * hidden].

        Raises:
            ValueError: on inputs that do not fit. `IndexError`: a position beyond `cos_sin`.
        """
        rows, hidden = x.shape
        if x.dtype != self.dtype or hidden != self._shape.hidden:
            raise ValueError(
                f"x is {x.dtype} of width {hidden}: it must be {self.dtype} of width "
                f"{self._shape.hidden}"
            )
        one_per_row = [requests.positions, requests.slots]
        one_per_row += [] if requests.parents is None else [requests.parents]
        if any(one.dtype != torch.int64 or one.shape != (rows,) for one in one_per_row):
            raise ValueError(f"positions, slots and parents must be int64 [{rows}]")
        if not self._pool:
            raise ValueError("the decoder has no pool; `use_pool` gives it one")
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        tapped = x.new_empty(rows, len(taps) * hidden)
        refused = load().jetspec_decoder_forward(
            self._handle, x.contiguous(), rows,
            requests.positions.contiguous(), requests.slots.contiguous(),
            requests.req_to_token, requests.req_to_token.stride(0),
            requests.req_pool_indices.to(torch.int64).contiguous(),
            requests.prefix_lens, requests.row_starts,
            None if requests.parents is None else requests.parents.contiguous(),
            requests.prefix_lens.numel(), requests.mode,
            torch.tensor(taps, dtype=torch.int64), len(taps), tapped, out,
        )  # fmt: skip
        if refused == 1:
            raise IndexError("a position lies outside the rotary embedding's table")
        if refused:
            raise ValueError("rows of the requests do not fit the tensors given")
        return out, tapped

    def feed(self, taps: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> None:
        """Write the keys and values that a head's layers keep of taps [rows, taps * hidden].

        positions and slots int64 [rows].

        Raises:
            ValueError: on inputs that do not fit. `IndexError`: a position beyond `cos_sin`.
        """
        if self._context is None or not self._pool:
            raise ValueError("the decoder has no context or no pool")
        rows, width = taps.shape
        if taps.dtype != self.dtype or width != self._context.fc.weight.inputs:
            raise ValueError(
                f"taps are {taps.dtype} of width {width}: they must be {self.dtype} of width "
                f"{self._context.fc.weight.inputs}"
            )
        if any(one.dtype != torch.int64 or one.shape != (rows,) for one in (positions, slots)):
            raise ValueError(f"positions and slots must be int64 [{rows}]")
        taps = dense_rows(taps)
        if load().jetspec_decoder_feed(
            self._handle, taps, taps.stride(0), rows, positions.contiguous(), slots.contiguous()
        ):
            raise IndexError("a position lies outside the rotary embedding's table")


def _check(
    shape: Shape,
    layers: Sequence[Layer],
    norm: torch.Tensor,
    cos_sin: torch.Tensor,
    context: Context | None,
) -> None:
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = {
        "qkv": (query + 2 * kv, shape.hidden),
        "output": (shape.hidden, query),
        "gate_up": (2 * shape.inner, shape.hidden),
        "down": (shape.hidden, shape.inner),
    }
    if context is not None:
        sizes["context_kv"] = (2 * kv, shape.hidden)
    for index, layer in enumerate(layers):
        for name, size in sizes.items():
            affine = getattr(layer, name)
            if affine is None:
                raise ValueError(f"layer {index}: a head's layer must have {name}")
            found = (affine.weight.outputs, affine.weight.inputs)
            if found != size:
                raise ValueError(f"layer {index}: {name} is {list(found)}, must be {list(size)}")
        for tensor in layer.tensors():
            if tensor is not None and (tensor.dtype != norm.dtype or not tensor.is_contiguous()):
                raise ValueError(f"layer {index}: its tensors must be contiguous {norm.dtype}")
        if (layer.query_norm is None) != (layer.key_norm is None):
            raise ValueError(f"layer {index}: queries and keys must both have a norm, or neither")
    multiples = (shape.hidden, shape.inner, shape.head_dim, shape.rotary_dim // 2)
    if any(size % LANES for size in multiples) or shape.rotary_dim > shape.head_dim:
        raise ValueError(
            f"hidden {shape.hidden}, inner {shape.inner}, head_dim {shape.head_dim} and half of "
            f"rotary_dim {shape.rotary_dim} must be multiples of {LANES}"
        )
    if cos_sin.dtype != norm.dtype or cos_sin.shape[1] != shape.rotary_dim:
        raise ValueError(f"cos_sin must be {norm.dtype} [positions, {shape.rotary_dim}]")
