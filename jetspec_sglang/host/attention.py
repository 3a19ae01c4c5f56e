"""`HostAttention`: SGLang's attention backend on the CPU, tree masks included.

One native kernel reads K and V in place through each request's slot row: the prefix is never copied
or recomputed, whether it was cached, chunked or decoded. A row's keys are its prefix, then its own
new rows as its mask allows: causally, all of the block, or its tree ancestors and itself. The
kernel sums a row's keys in this order, whatever else is in the call, so a tree node and the plain
decode step for the same path agree bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

from jetspec_sglang.host import kernels
from jetspec_sglang.host.kernels import MaskMode

if TYPE_CHECKING:
    from sglang.srt.layers.radix_attention import RadixAttention
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Which rows of a forward belong to which request, and what they may see.

    prefix_lens: int64 [bs], positions every row of the request sees.
    row_starts: int64 [bs + 1], request i owns rows row_starts[i]:row_starts[i + 1].
    parents: int64 [rows], tree parent within the request (root -1), or None without a tree.
    """

    prefix_lens: torch.Tensor
    row_starts: torch.Tensor
    parents: torch.Tensor | None


class HostAttention(AttentionBackend):
    """MHA/GQA attention over SGLang's slot-major KV pool on the CPU."""

    needs_cpu_seq_lens = False

    def __init__(self, model_runner: ModelRunner) -> None:
        super().__init__()
        _refuse_unsupported(model_runner)
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.layout: RowLayout | None = None
        """Of the forward that runs; None for an idle one."""

    def init_forward_metadata(self, forward_batch: ForwardBatch) -> None:
        mode = forward_batch.forward_mode
        if mode.is_idle():
            self.layout = None
        elif mode.is_decode():
            self.layout = _uniform(forward_batch.seq_lens - 1, 1, None)
        elif mode.is_target_verify():
            spec = forward_batch.spec_info
            parents = getattr(spec, "tree_parents", None)
            self.layout = _uniform(forward_batch.seq_lens, spec.draft_token_num, parents)
        else:
            lens = forward_batch.extend_seq_lens.to(torch.int64)
            starts = torch.zeros(lens.numel() + 1, dtype=torch.int64)
            torch.cumsum(lens, 0, out=starts[1:])
            self.layout = RowLayout(forward_batch.extend_prefix_lens.to(torch.int64), starts, None)

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
        **kwargs: object,
    ) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, kwargs)

    def forward_extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool = True,
        **kwargs: object,
    ) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, kwargs)

    def support_triton(self) -> bool:
        return False

    def _attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: RadixAttention,
        forward_batch: ForwardBatch,
        save_kv_cache: bool,
        extra: dict[str, object],
    ) -> torch.Tensor:
        """q `[rows, q_heads * head_dim]` -> `[rows, q_heads * v_head_dim]`."""
        unknown = sorted(name for name, value in extra.items() if value is not None)
        if unknown:
            raise NotImplementedError(f"host attention does not support {', '.join(unknown)}")
        layout = self.layout
        if layout is None:
            raise RuntimeError("host attention ran before init_forward_metadata")
        if save_kv_cache and k is not None and v is not None:
            self.token_to_kv_pool.set_kv_buffer(layer, KVWriteLoc.for_batch(forward_batch), k, v)
        if layout.parents is not None:
            mask = MaskMode.TREE
        elif layer.attn_type == AttentionType.ENCODER_ONLY:
            mask = MaskMode.FULL
        else:
            mask = MaskMode.CAUSAL
        out = q.new_empty((q.shape[0], layer.tp_q_head_num * layer.v_head_dim))
        kernels.attention(
            q.view(-1, layer.tp_q_head_num, layer.qk_head_dim),
            self.token_to_kv_pool.get_key_buffer(layer.layer_id),
            self.token_to_kv_pool.get_value_buffer(layer.layer_id),
            out.view(-1, layer.tp_q_head_num, layer.v_head_dim),
            self.req_to_token_pool.req_to_token,
            forward_batch.req_pool_indices,
            layout.prefix_lens,
            layout.row_starts,
            layout.parents,
            mask,
            layer.scaling,
            layer.logit_cap,
        )
        return out


def _uniform(prefix_lens: torch.Tensor, rows: int, parents: torch.Tensor | None) -> RowLayout:
    """The layout of a batch in which every request has `rows` rows."""
    bs = prefix_lens.numel()
    starts = torch.arange(0, (bs + 1) * rows, rows, dtype=torch.int64)
    return RowLayout(prefix_lens.to(torch.int64), starts, parents)


def _refuse_unsupported(model_runner: ModelRunner) -> None:
    """One clear error for a model with attention that this backend does not support."""
    config = model_runner.model_config
    if model_runner.use_mla_backend:
        raise ValueError("the host platform serves MHA/GQA models; this target uses MLA")
    if model_runner.sliding_window_size is not None and model_runner.sliding_window_size > 0:
        raise ValueError(
            "the host platform has no sliding-window attention; "
            f"this model asks for {model_runner.sliding_window_size} positions"
        )
    if config.is_encoder_decoder:
        raise ValueError("the host platform serves decoder-only models")
