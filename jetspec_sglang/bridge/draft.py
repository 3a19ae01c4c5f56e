"""SGLang's runner of a draft head, and the head's KV pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.server_args import ServerArgs


@dataclass(frozen=True, slots=True)
class DraftRunner:
    """SGLang's worker, runner and model of a draft head."""

    worker: TpModelWorker
    runner: ModelRunner
    model: Any


def build_draft_runner(
    *,
    server_args: ServerArgs,
    gpu_id: int,
    nccl_port: int,
    target_worker: TpModelWorker,
    attention_backend: str | None,
    causal: bool,
) -> DraftRunner:
    """Load the head through SGLang's own draft model and give it the right attention mask.

    Stock SGLang reads only the top-level `is_causal` and defaults to bidirectional, so the
    mask is set here, before any forward or graph capture.
    """
    from sglang.srt.layers.radix_attention import AttentionType
    from sglang.srt.speculative.draft_worker_common import build_draft_tp_worker
    from sglang.srt.speculative.spec_utils import draft_pp_context

    with draft_pp_context():
        bundle = build_draft_tp_worker(
            server_args=server_args,
            gpu_id=gpu_id,
            nccl_port=nccl_port,
            target_model_config=target_worker.model_runner.model_config,
            algo_label="JETSPEC",
            attention_backend_override=attention_backend,
        )
    model = bundle.draft_model
    attention_type = AttentionType.DECODER if causal else AttentionType.ENCODER_ONLY
    for layer in model.layers:
        layer.self_attn.attn.attn_type = attention_type
        if bundle.draft_model_runner.device == "cpu":
            # For bfloat16 SGLang takes a Triton kernel here without looking at the device.
            layer.self_attn.use_table_qk_norm_rope = False
    target_embed = target_worker.model_runner.model.get_input_embeddings()
    # A plain function: assigning the module would register it as the head's own.
    model.forward_embed = lambda ids: target_embed(ids)
    return DraftRunner(bundle.draft_worker, bundle.draft_model_runner, model)


def draft_slots(draft: DraftRunner, plan: KVLocPlan) -> torch.Tensor:
    """The plan's write slots, int64 [n], as the head's pool indexes them."""
    return plan.write_ids(draft.runner.kv_index_translator)


def feed_taps(
    draft: DraftRunner, taps: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
) -> None:
    """Write what the head keeps of the target's taps into the head's KV pool.

    taps [n, K * hidden], positions int64 [n], slots int64 [n] of the head's pool. A platform can
    give the model a faster way, `feed_taps(pool, taps, positions, slots)`, which returns whether it
    did it.
    """
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    pool = draft.runner.token_to_kv_pool
    faster = getattr(draft.model, "feed_taps", None)
    if faster is not None and faster(pool, taps, positions, slots):
        return
    where = KVWriteLoc(slots, physical=True)
    for attention, k, v in _projected(draft, draft.model.project_target_hidden(taps), positions):
        pool.set_kv_buffer(attention, where, k, v)


def write_draft_kv_prefix(
    draft: DraftRunner,
    context: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    lens: torch.Tensor,
) -> None:
    """Project context rows [n, hidden] (through `fc` and `hidden_norm`) into the head's KV pool.

    Static shapes: of slots int64 [bs, width] only each request's first `lens` (int32 [bs]) are
    written.
    """
    pool = draft.runner.token_to_kv_pool
    for attention, k, v in _projected(draft, context, positions):
        pool.set_kv_buffer_prefix_valid(attention, slots, lens, k, v)


def _projected(
    draft: DraftRunner, context: torch.Tensor, positions: torch.Tensor
) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
    """Each layer's attention, and the context's K and V, [n, KV heads, head dim]."""
    for layer in draft.model.layers:
        attention = layer.self_attn
        k, v = attention.kv_proj_only(context)
        k = attention.apply_k_rope(positions, attention.apply_k_norm(k))
        shape = (-1, attention.num_kv_heads, attention.head_dim)
        yield attention.attn, k.reshape(shape), v.reshape(shape)
