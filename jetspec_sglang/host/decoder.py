"""SGLang's Llama, Qwen2 and Qwen3 decoders, and draft heads, as one compiled call per forward.

Contract: `install` makes a model's layers run on a `kernels.Decoder`. That is built at the first
forward, from the layers as they are then; where they are not what it supports, and in a forward
that it does not support, SGLang's own layers run. Bits are the same either way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.activation import SiluAndMul
from sglang.srt.layers.aux_hidden_states import AuxHiddenStateList
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from sglang.srt.model_executor.forward_context import get_attn_backend
from sglang.srt.models.dflash import DFlashDecoderLayer, DFlashDraftModel
from sglang.srt.models.llama import LlamaDecoderLayer, LlamaModel
from sglang.srt.models.qwen2 import Qwen2DecoderLayer, Qwen2Model
from sglang.srt.models.qwen3 import Qwen3DecoderLayer, Qwen3Model
from sglang.srt.runtime_context import get_parallel

from jetspec_sglang.host.attention import HostAttention, RowLayout
from jetspec_sglang.host.kernels import MaskMode, Packed, pack
from jetspec_sglang.host.kernels import decoder as kernels
from jetspec_sglang.host.linear import PackedWeight
from jetspec_sglang.host.pool import HostKVPool

if TYPE_CHECKING:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch

logger = logging.getLogger(__name__)

_LAYERS = {
    LlamaModel: LlamaDecoderLayer,
    Qwen2Model: Qwen2DecoderLayer,
    Qwen3Model: Qwen3DecoderLayer,
}
"""The inner modules that this supports, and the only kind of layer that each may have."""


class UnsupportedError(Exception):
    """Why SGLang's own layers must run; the message is for the log."""


def install(model: torch.nn.Module) -> None:
    """Run the layers of `model` in one call, if it is of a kind that this supports."""
    inner: Any = getattr(model, "model", None)
    if type(inner) in _LAYERS:
        inner.forward = _TargetForward(inner)
    elif type(model) is DFlashDraftModel:
        head = _HeadForward(model)
        model.forward = head
        model.feed_taps = head.feed  # type: ignore[assignment]  # for `bridge.feed_taps`


class _Stack:
    """A module's layers as a `kernels.Decoder`, and the KV pool that it writes."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._own = module.forward
        self._built: kernels.Decoder | None = None
        self._tried = False
        self._pool: HostKVPool | None = None

    def _decoder(self, pool: Any) -> kernels.Decoder | None:
        """Ready to write this pool, or None where SGLang's own layers must run."""
        if not self._tried:
            self._tried = True
            try:
                self._built = _decoder_of(self._module)
            except (UnsupportedError, ValueError) as error:
                kind = type(self._module).__name__
                logger.info("the layers of %s run one by one: %s", kind, error)
        if self._built is None or pool is self._pool:
            return self._built
        if (
            type(pool) is not HostKVPool
            or pool.layer_transfer_counter is not None
            or pool.store_dtype != self._built.dtype
        ):
            return None
        self._built.use_pool(list(zip(pool.k_buffer, pool.v_buffer, strict=True)))
        self._pool = pool
        return self._built


class _TargetForward(_Stack):
    """Stands in for the `forward` of a model's inner module."""

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: ForwardBatch,
        input_embeds: torch.Tensor | None = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        backend: HostAttention = get_attn_backend()
        decoder, layout = self._decoder(backend.token_to_kv_pool), backend.layout
        if decoder is None or layout is None:
            return self._own(input_ids, positions, forward_batch, input_embeds, pp_proxy_tensors)
        x = self._module.embed_tokens(input_ids) if input_embeds is None else input_embeds
        mode = MaskMode.CAUSAL if layout.parents is None else MaskMode.TREE
        rows = _rows(backend, layout, forward_batch, positions, mode)
        count = len(self._module.layers)
        taps = sorted({i for i in self._module.layers_to_capture if i < count})
        hidden, tapped = decoder.forward(x, rows, taps)
        if not taps:
            return hidden
        captured = AuxHiddenStateList()
        captured.capture(tapped, owned=True)
        return hidden, captured


class _HeadForward(_Stack):
    """Stands in for the `forward` of a draft head, and takes in the target's taps."""

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: ForwardBatch,
        input_embeds: torch.Tensor | None = None,
        **options: Any,
    ) -> Any:
        backend: HostAttention = get_attn_backend()
        decoder, layout = self._decoder(backend.token_to_kv_pool), backend.layout
        if decoder is None or layout is None:
            return self._own(input_ids, positions, forward_batch, input_embeds, **options)
        x = self._module.forward_embed(input_ids) if input_embeds is None else input_embeds
        full = self._module.layers[0].self_attn.attn.attn_type == AttentionType.ENCODER_ONLY
        mode = MaskMode.FULL if full else MaskMode.CAUSAL
        rows = _rows(backend, layout, forward_batch, positions, mode)
        hidden, _ = decoder.forward(x, rows, [])
        return LogitsProcessorOutput(next_token_logits=None, hidden_states=hidden)

    def feed(
        self, pool: Any, taps: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
    ) -> bool:
        """See `bridge.feed_taps`."""
        decoder = self._decoder(pool)
        if decoder is None:
            return False
        decoder.feed(taps, positions, slots)
        return True


def _rows(
    backend: HostAttention,
    layout: RowLayout,
    forward_batch: ForwardBatch,
    positions: torch.Tensor,
    mode: MaskMode,
) -> kernels.Requests:
    return kernels.Requests(
        positions,
        forward_batch.out_cache_loc,
        backend.req_to_token_pool.req_to_token,
        forward_batch.req_pool_indices,
        layout.prefix_lens,
        layout.row_starts,
        layout.parents,
        mode,
    )


def _decoder_of(module: Any) -> kernels.Decoder:
    if get_parallel().tp_size != 1 or get_parallel().pp_size != 1:
        raise UnsupportedError("parallelism over several processes")
    kind = _LAYERS.get(type(module), DFlashDecoderLayer)
    for layer in module.layers:
        if type(layer) is not kind:
            raise UnsupportedError(f"a layer is a {type(layer).__name__}, not a {kind.__name__}")
    if any(one._forward_hooks or one._forward_pre_hooks for one in module.modules()):
        raise UnsupportedError("hooks on its modules")
    attention, mlp = module.layers[0].self_attn, module.layers[0].mlp
    rotary = attention.rotary_emb
    _check_rotary(rotary, module.layers)
    head_norm = getattr(attention, "q_norm", None)
    shape = kernels.Shape(
        hidden=module.config.hidden_size,
        heads=attention.num_heads,
        kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        inner=mlp.down_proj.input_size,
        rotary_dim=rotary.rotary_dim,
        eps=module.norm.variance_epsilon,
        head_eps=head_norm.variance_epsilon if head_norm is not None else 0.0,
        scale=attention.attn.scaling,
        logit_cap=attention.attn.logit_cap,
    )
    is_head = kind is DFlashDecoderLayer
    if is_head:
        _check_head(module)
    layers = [_layer(layer, shape, is_head=is_head) for layer in module.layers]
    norm = _norm(module.norm, shape.eps)
    context = None
    if is_head:
        fc = kernels.Affine(_packed(module.fc), module.fc.bias)
        context = kernels.Context(fc, _norm(module.hidden_norm, shape.eps))
    return kernels.Decoder(shape, layers, norm, rotary.cos_sin_cache.contiguous(), context)


def _check_head(head: Any) -> None:
    if head.quantizable or head.embed_tokens is not None:
        raise UnsupportedError("a head of another family")
    for layer in head.layers:
        attention = layer.self_attn
        if layer.attention_conv is not None or layer.mlp_conv is not None:
            raise UnsupportedError("convolutions in the head")
        if attention.v_scale is not None or attention.attention_sink_bias is not None:
            raise UnsupportedError("scaled values or attention sinks in the head")
        if attention.attn.attn_type != head.layers[0].self_attn.attn.attn_type:
            raise UnsupportedError("layers whose attention differs")


def _layer(layer: Any, shape: kernels.Shape, *, is_head: bool) -> kernels.Layer:
    attention, mlp = layer.self_attn, layer.mlp
    radix = attention.attn
    if (radix.scaling, radix.logit_cap) != (shape.scale, shape.logit_cap):
        raise UnsupportedError("layers whose attention differs")
    causal = radix.attn_type == AttentionType.DECODER
    if not (causal or is_head) or radix.sliding_window_size > 0:
        raise UnsupportedError("attention that is not causal over the whole prefix")
    if radix.k_scale is not None or radix.quant_method is not None or radix.use_irope:
        raise UnsupportedError("scaled keys and values")
    if type(mlp.act_fn) is not SiluAndMul:
        raise UnsupportedError(f"activation {type(mlp.act_fn).__name__}")
    heads = {name: getattr(attention, name, None) for name in ("q_norm", "k_norm")}
    norms = {k: None if n is None else _norm(n, shape.head_eps) for k, n in heads.items()}
    return kernels.Layer(
        input_norm=_norm(layer.input_layernorm, shape.eps),
        qkv=_affine(attention.qkv_proj),
        query_norm=norms["q_norm"],
        key_norm=norms["k_norm"],
        output=_affine(attention.o_proj),
        post_norm=_norm(layer.post_attention_layernorm, shape.eps),
        gate_up=_affine(mlp.gate_up_proj),
        down=_affine(mlp.down_proj),
        context_kv=_key_value_part(attention.qkv_proj, attention.q_size) if is_head else None,
    )


def _key_value_part(qkv: Any, queries: int) -> kernels.Affine:
    """The rows of a fused projection that give keys and values."""
    bias = None if qkv.bias is None else qkv.bias.detach()[queries:].contiguous()
    return kernels.Affine(pack(qkv.weight.detach()[queries:]), bias)


def _packed(linear: Any) -> Packed:
    method = getattr(linear, "quant_method", None)  # LoRA's wrapper has none
    packed = getattr(linear if method is None else method, "packed", None)
    if type(packed) is not PackedWeight or packed.kernel is None:
        raise UnsupportedError(f"a linear layer that is not packed: {type(linear).__name__}")
    return packed.kernel


def _affine(linear: Any) -> kernels.Affine:
    bias = None if linear.skip_bias_add else linear.bias
    return kernels.Affine(_packed(linear), None if bias is None else bias.detach())


def _norm(norm: Any, eps: float) -> torch.Tensor:
    if (
        type(norm) is not RMSNorm
        or norm.variance_size_override is not None
        or norm.cast_x_before_out_mul
        or norm.fp32_residual
        or norm.override_orig_dtype is not None
        or norm.variance_epsilon != eps
    ):
        raise UnsupportedError("a norm that is not a plain RMSNorm, or with another epsilon")
    return norm.weight.detach()


def _check_rotary(rotary: Any, layers: Any) -> None:
    if any(layer.self_attn.rotary_emb is not rotary for layer in layers):
        raise UnsupportedError("layers with different rotary embeddings")
    if (
        not isinstance(rotary, RotaryEmbedding)
        or type(rotary).forward_native is not RotaryEmbedding.forward_native
        or not rotary.is_neox_style
        or hasattr(rotary, "sin_cos_cache")
    ):
        raise UnsupportedError(f"rotary embedding {type(rotary).__name__}")
