"""SGLang's Llama, Qwen2 and Qwen3 decoders as one compiled call per forward.

Contract: `install` makes a model's inner module run on a `kernels.Decoder`. That is built at the
first forward, from the layers as they are then; where they are not what it supports, and in a
forward that it does not support, SGLang's own layers run. Bits are the same either way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.activation import SiluAndMul
from sglang.srt.layers.aux_hidden_states import AuxHiddenStateList
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from sglang.srt.model_executor.forward_context import get_attn_backend
from sglang.srt.models.llama import LlamaDecoderLayer, LlamaModel
from sglang.srt.models.qwen2 import Qwen2DecoderLayer, Qwen2Model
from sglang.srt.models.qwen3 import Qwen3DecoderLayer, Qwen3Model
from sglang.srt.runtime_context import get_parallel

from jetspec_sglang.host.attention import HostAttention
from jetspec_sglang.host.kernels import MaskMode
from jetspec_sglang.host.kernels import decoder as kernels
from jetspec_sglang.host.linear import PackedLinearMethod
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
    """Run the decoder inside `model` in one call, if it is of a kind that this supports."""
    inner: Any = getattr(model, "model", None)
    if type(inner) in _LAYERS:
        inner.forward = _Forward(inner)


class _Forward:
    """Stands in for the inner module's `forward`."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._own = inner.forward
        self._decoder: kernels.Decoder | None = None
        self._pool: HostKVPool | None = None
        self._built = False

    def __call__(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        forward_batch: ForwardBatch,
        input_embeds: torch.Tensor | None = None,
        pp_proxy_tensors: Any = None,
    ) -> Any:
        if not self._built:
            self._build()
        backend: HostAttention = get_attn_backend()
        decoder, layout = self._decoder, backend.layout
        if decoder is None or layout is None or not self._use_pool(backend):
            return self._own(input_ids, positions, forward_batch, input_embeds, pp_proxy_tensors)
        x = self._inner.embed_tokens(input_ids) if input_embeds is None else input_embeds
        requests = kernels.Requests(
            positions,
            forward_batch.out_cache_loc,
            backend.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices,
            layout.prefix_lens,
            layout.row_starts,
            layout.parents,
            MaskMode.CAUSAL if layout.parents is None else MaskMode.TREE,
        )
        taps = sorted({i for i in self._inner.layers_to_capture if i < len(self._inner.layers)})
        hidden, tapped = decoder.forward(x, requests, taps)
        if not taps:
            return hidden
        captured = AuxHiddenStateList()
        captured.capture(tapped, owned=True)
        return hidden, captured

    def _use_pool(self, backend: HostAttention) -> bool:
        """Whether the decoder can write this backend's KV pool."""
        pool = backend.token_to_kv_pool
        assert self._decoder is not None
        if pool is not self._pool:
            if (
                type(pool) is not HostKVPool
                or pool.layer_transfer_counter is not None
                or pool.store_dtype != self._decoder.dtype
            ):
                return False
            self._decoder.use_pool(list(zip(pool.k_buffer, pool.v_buffer, strict=True)))
            self._pool = pool
        return True

    def _build(self) -> None:
        self._built = True
        try:
            self._decoder = _decoder_of(self._inner)
        except (UnsupportedError, ValueError) as error:
            logger.info("the decoder's layers run one by one: %s", error)


def _decoder_of(inner: Any) -> kernels.Decoder:
    if get_parallel().tp_size != 1 or get_parallel().pp_size != 1:
        raise UnsupportedError("parallelism over several processes")
    kind = _LAYERS[type(inner)]
    for layer in inner.layers:
        if type(layer) is not kind:
            raise UnsupportedError(f"a layer is a {type(layer).__name__}, not a {kind.__name__}")
    if any(one._forward_hooks or one._forward_pre_hooks for one in inner.modules()):
        raise UnsupportedError("hooks on its modules")
    attention, mlp = inner.layers[0].self_attn, inner.layers[0].mlp
    rotary = attention.rotary_emb
    _check_rotary(rotary, inner.layers)
    head_norm = getattr(attention, "q_norm", None)
    shape = kernels.Shape(
        hidden=inner.config.hidden_size,
        heads=attention.num_heads,
        kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        inner=mlp.down_proj.input_size,
        rotary_dim=rotary.rotary_dim,
        eps=inner.norm.variance_epsilon,
        head_eps=head_norm.variance_epsilon if head_norm is not None else 0.0,
        scale=attention.attn.scaling,
        logit_cap=attention.attn.logit_cap,
    )
    layers = [_layer(layer, shape) for layer in inner.layers]
    norm = _norm(inner.norm, shape.eps)
    return kernels.Decoder(shape, layers, norm, rotary.cos_sin_cache.contiguous())


def _layer(layer: Any, shape: kernels.Shape) -> kernels.Layer:
    attention, mlp = layer.self_attn, layer.mlp
    radix = attention.attn
    if (radix.scaling, radix.logit_cap) != (shape.scale, shape.logit_cap):
        raise UnsupportedError("layers whose attention differs")
    if radix.attn_type != AttentionType.DECODER or radix.sliding_window_size > 0:
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
    )


def _affine(linear: Any) -> kernels.Affine:
    method = getattr(linear, "quant_method", None)  # a LoRA wrapper has none
    if type(method) is not PackedLinearMethod or method.packed.kernel is None:
        raise UnsupportedError(f"a linear layer that is not packed: {type(linear).__name__}")
    bias = None if linear.skip_bias_add else linear.bias
    return kernels.Affine(method.packed.kernel, None if bias is None else bias.detach())


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
