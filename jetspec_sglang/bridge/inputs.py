"""`TreeVerifyInput`: the target's verify forward over one tree per request."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sglang.srt.speculative.dflash_info import DFlashVerifyInput


@dataclass
class TreeVerifyInput(DFlashVerifyInput):
    """SGLang's verify input plus the tree.

    tree_parents: int64 [bs * B], rank of each node's parent, -1 for roots and padding; the host's
    attention reads it. On CUDA `custom_mask` carries the same relation. `positions` is prefix
    length + depth of each node.
    """

    tree_parents: torch.Tensor | None = None
