"""`HostKVPool`: SGLang's MHA pool without its Triton row copy.

SGLang warms up a Triton kernel in every pool of a speculative run, which fails where no
Triton driver exists; only the two methods that lead there are replaced.
"""

from __future__ import annotations

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool


class HostKVPool(MHATokenToKVPool):
    """KV pool in host memory, slot-major `[slots, kv_heads, head_dim]` per layer."""

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
