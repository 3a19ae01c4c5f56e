"""`HostKVPool`: SGLang's MHA pool without its Triton row copy.

SGLang warms up a Triton kernel in every pool of a speculative run, which fails where no
Triton driver exists; only the methods that lead there are replaced. The pool's memory is
touched at start, so that no round pays for the first use of a page.
"""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool


class HostKVPool(MHATokenToKVPool):
    """KV pool in host memory, slot-major `[slots, kv_heads, head_dim]` per layer."""

    def _create_buffers(self) -> None:
        super()._create_buffers()
        # Zeroed memory is mapped on first touch; touch it now, not inside rounds.
        for buffer in (*self.k_buffer, *self.v_buffer):
            buffer.fill_(0)

    def _init_kv_copy_and_warmup(self) -> None:
        self._kv_copy_config = None

    def _move_kv_cache_impl(self, tgt_loc: torch.Tensor, src_loc: torch.Tensor) -> None:
        """Copy rows `src_loc` to `tgt_loc` (int64 `[n]`) in every layer.

        Each source is read before any target is written, so overlapping sets are safe.
        """
        if tgt_loc.numel() == 0:
            return
        for buffer in (*self.k_buffer, *self.v_buffer):
            buffer.index_copy_(0, tgt_loc, buffer.index_select(0, src_loc))

    def _store_kv_layer(
        self, layer_idx: int, loc: torch.Tensor, cache_k: torch.Tensor, cache_v: torch.Tensor
    ) -> None:
        # Indexed assignment, which the base class uses, starts a parallel region for a few rows.
        self.k_buffer[layer_idx].index_copy_(0, loc, cache_k)
        self.v_buffer[layer_idx].index_copy_(0, loc, cache_v)
