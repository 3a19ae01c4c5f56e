"""`CudaOps`: rounds on a GPU, with static shapes and no host synchronisation.

FlashInfer takes the tree as a custom mask: per request a row-major [B, prefix + B] block of
booleans, concatenated, where True means "may attend".
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import torch

from jetspec_sglang import bridge

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan

    from jetspec_sglang.device.base import Linear, Reservation
    from jetspec_sglang.tree import Tree
    from jetspec_sglang.verify.accept import Accepted


class CudaOps:
    """SGLang's own GPU kernels for slots and moves; masks built on the device."""

    name = "cuda"
    attention_backend: str | None = None

    def reserve(self, batch: ScheduleBatch, reservation: Reservation) -> None:
        bridge.allocate_for_round(batch, reservation.current, reservation.needed)

    def window(self, batch: ScheduleBatch, width: int) -> torch.Tensor:
        return bridge.window_slots(batch, width)

    def mask(self, batch: ScheduleBatch, tree: Tree) -> torch.Tensor | None:
        # The host mirror of the lengths sizes the mask; it never lags below the true ones.
        longest = int(batch.seq_lens_sum or batch.seq_lens_cpu.sum())
        return flat_mask(tree.parents, batch.seq_lens, longest)

    def compact(self, batch: ScheduleBatch, window: torch.Tensor, accepted: Accepted) -> None:
        bridge.move_accepted(batch, window, accepted.path, accepted.lens)

    def feed(
        self,
        draft: bridge.DraftRunner,
        taps: torch.Tensor,
        positions: torch.Tensor,
        plan: KVLocPlan,
        accepted: Accepted,
    ) -> None:
        path = accepted.path
        bs, stride = path.shape
        base = torch.arange(bs, device=path.device)[:, None] * (taps.shape[0] // bs)
        node = (base + path.clamp(min=0)).reshape(-1)
        slots = bridge.draft_slots(draft, plan).view(bs, -1)[:, :stride]
        context = draft.model.project_target_hidden(taps[node])
        bridge.write_draft_kv_prefix(draft, context, positions[node], slots, accepted.lens)

    def linear(self, weight: torch.Tensor) -> Linear:
        return partial(torch.nn.functional.linear, weight=weight)

    def now(self) -> float:
        # Launch time; kernels overlap with it. Graph-level timing belongs to the GPU bench.
        return time.perf_counter()


def ancestors(parents: torch.Tensor) -> torch.Tensor:
    """Bool [bs, B, B]: whether node j is i itself or an ancestor of i.

    parents int64 [bs, B], -1 for root and padding; every node also sees the root, which keeps
    a padding row's softmax defined. Doubling: log2(B) products, no host synchronisation.
    """
    bs, width = parents.shape
    reach = torch.eye(width, dtype=torch.bool, device=parents.device).expand(bs, -1, -1).clone()
    reach.scatter_(2, parents.clamp(min=0)[:, :, None], True)
    reach[:, :, 0] = True
    steps = max(1, (width - 1).bit_length())
    for _ in range(steps):
        matrix = reach.to(torch.float32)
        reach = torch.bmm(matrix, matrix) > 0
    return reach


def flat_mask(parents: torch.Tensor, prefix_lens: torch.Tensor, prefix_sum: int) -> torch.Tensor:
    """FlashInfer's custom mask, bool [prefix_sum * B + bs * B * B].

    prefix_lens int64 [bs] on the device; `prefix_sum` is their sum on the host. Request i's
    block starts at (sum of earlier lengths) * B + i * B * B and has prefix + B columns.
    """
    bs, width = parents.shape
    device = parents.device
    size = prefix_sum * width + bs * width * width
    mask = torch.ones(size, dtype=torch.bool, device=device)
    columns = prefix_lens + width
    start = (torch.cumsum(columns, 0) - columns) * width
    rows = torch.arange(width, device=device)
    place = (
        start[:, None, None]
        + rows[None, :, None] * columns[:, None, None]
        + prefix_lens[:, None, None]
        + rows[None, None, :]
    )
    mask[place.reshape(-1)] = ancestors(parents).reshape(-1)
    return mask
