"""KV slots of a round: reserve, look up, move; and what the scheduler's memory check is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan


def publish_budget(budget: int, reserve: int) -> None:
    """Make SGLang's metrics and KV estimates follow the budget in force.

    `budget` is what `sglang:spec_num_draft_tokens` and the internal state show; `reserve` is
    the slots a request may take in one round, which the scheduler's memory check doubles.
    """
    from sglang.srt.runtime_context import get_context, get_spec

    get_context().override("jetspec", speculative_num_draft_tokens=budget)
    get_spec()._set("max_speculative_num_draft_tokens", reserve)


def plan_window(worker: TpModelWorker, batch: ScheduleBatch, window: torch.Tensor) -> KVLocPlan:
    """SGLang's id plan for a round that writes `window`, slots int64 [bs, width]."""
    return worker.model_runner.kv_index_translator.plan(
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens_cpu,
        write_virtual=window.reshape(-1),
        read_extent=window.shape[1],
    )


def allocate_slots(tree_cache: Any, count: int) -> torch.Tensor:
    """`count` free KV slots, int64, evicting cached prefixes when needed."""
    from sglang.srt.mem_cache.allocation import alloc_token_slots

    return alloc_token_slots(tree_cache, count)


def allocate_for_round(batch: ScheduleBatch, current: list[int], needed: list[int]) -> None:
    """SGLang's GPU allocation of slots up to `needed` per request, entered in its rows."""
    from sglang.srt.mem_cache.allocation import alloc_for_spec_decode

    current_cpu = torch.tensor(current, dtype=torch.int32)
    needed_cpu = torch.tensor(needed, dtype=torch.int32)
    alloc_for_spec_decode(
        batch.tree_cache,
        batch.req_to_token_pool,
        reqs=batch.reqs,
        req_pool_indices=batch.req_pool_indices,
        cur_kv_lens=current_cpu.to(batch.device, non_blocking=True),
        cur_kv_lens_cpu=current_cpu,
        nxt_kv_lens=needed_cpu.to(batch.device, non_blocking=True),
        nxt_kv_lens_cpu=needed_cpu,
        num_needed_tokens=sum(needed) - sum(current),
        batch=batch,
    )


def window_slots(batch: ScheduleBatch, width: int) -> torch.Tensor:
    """Slots int64 [bs, width] after each request's committed length, on the GPU."""
    from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func

    bs = batch.batch_size()
    flat = assign_extend_cache_locs_func(
        req_pool_indices=batch.req_pool_indices,
        req_to_token=batch.req_to_token_pool.req_to_token,
        start_offset=batch.seq_lens,
        end_offset=batch.seq_lens + width,
        batch_size=bs,
        draft_token_num=width,
        device=batch.device,
    )
    return flat.view(bs, width)


def move_accepted(
    batch: ScheduleBatch, window: torch.Tensor, path: torch.Tensor, lens: torch.Tensor
) -> None:
    """SGLang's GPU compaction of accepted rows; path int64 [bs, stride] padded with -1."""
    from sglang.srt.speculative.spec_utils import move_accept_tokens_to_target_kvcache

    bs, width = window.shape
    base = torch.arange(bs, device=path.device)[:, None] * width
    index = torch.where(path >= 0, base + path, path).to(torch.int32)
    batch.out_cache_loc = window.reshape(-1)
    move_accept_tokens_to_target_kvcache(batch, index, lens - 1, batch.token_to_kv_pool_allocator)
