"""`HostOps`: rounds on the CPU, where every tensor can be read without waiting."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import torch

from jetspec_sglang import bridge
from jetspec_sglang.host.names import HOST_ATTENTION

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan

    from jetspec_sglang.device.base import Linear, Reservation
    from jetspec_sglang.tree import Tree
    from jetspec_sglang.verify.accept import Accepted


class HostOps:
    """Plain indexing; dynamic shapes; ancestor masks travel as parent indices."""

    name = "cpu"
    attention_backend: str | None = HOST_ATTENTION

    def reserve(self, batch: ScheduleBatch, reservation: Reservation) -> None:
        if reservation.total:
            slots = bridge.allocate_slots(batch.tree_cache, reservation.total)
            rows = batch.req_to_token_pool.req_to_token
            start = 0
            for row, current, needed in zip(
                batch.req_pool_indices.tolist(),
                reservation.current,
                reservation.needed,
                strict=True,
            ):
                end = start + needed - current
                rows[row, current:needed] = slots[start:end].to(rows.dtype)
                start = end
        for req, needed in zip(batch.reqs, reservation.needed, strict=True):
            req.kv.kv_allocated_len = needed

    def window(self, batch: ScheduleBatch, width: int) -> torch.Tensor:
        columns = batch.seq_lens[:, None] + torch.arange(width)
        rows = batch.req_to_token_pool.req_to_token
        return rows[batch.req_pool_indices[:, None], columns].to(torch.int64)

    def mask(self, batch: ScheduleBatch, tree: Tree) -> torch.Tensor | None:
        return None

    def compact(self, batch: ScheduleBatch, window: torch.Tensor, accepted: Accepted) -> None:
        path = accepted.path
        moved = (path > torch.arange(path.shape[1])).nonzero(as_tuple=True)
        if moved[0].numel():
            batch.token_to_kv_pool_allocator.get_kvcache().move_kv_cache(
                window[moved], window[moved[0], path[moved]]
            )

    def feed(
        self,
        draft: bridge.DraftRunner,
        taps: torch.Tensor,
        positions: torch.Tensor,
        plan: KVLocPlan,
        accepted: Accepted,
    ) -> None:
        row, column = (accepted.path >= 0).nonzero(as_tuple=True)
        bs = accepted.path.shape[0]
        node = row * (taps.shape[0] // bs) + accepted.path[row, column]
        slots = bridge.draft_slots(draft, plan).view(bs, -1)[row, column]
        bridge.feed_taps(draft, taps[node], positions[node], slots)

    def linear(self, weight: torch.Tensor) -> Linear:
        from jetspec_sglang.host.linear import PackedWeight, can_pack

        if can_pack(weight.dtype):
            return PackedWeight(weight).linear
        return partial(torch.nn.functional.linear, weight=weight)

    def now(self) -> float:
        return time.perf_counter()
