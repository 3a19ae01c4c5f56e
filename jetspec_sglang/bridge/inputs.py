"""SGLang's speculative inputs of the two forwards of a round: the head's block, the target's trees.

Here a budget gets SGLang's name for it, `draft_token_num`. Imports SGLang, so it is not part of the
package's own names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput

if TYPE_CHECKING:
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan


@dataclass
class TreeVerifyInput(DFlashVerifyInput):
    """SGLang's verify input plus the tree.

    tree_parents: int64 [bs * B], rank of each node's parent, -1 for roots and padding; the host's
    attention reads it. On CUDA `custom_mask` carries the same relation. `positions` is prefix
    length + depth of each node.
    """

    tree_parents: torch.Tensor | None = None

    @classmethod
    def of(
        cls,
        node_tokens: torch.Tensor,
        parents: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        plan: KVLocPlan | None = None,
    ) -> TreeVerifyInput:
        """node_tokens and parents int64 [bs, B], positions int64 [bs * B].

        `plan` is the round's, whose first B columns this forward writes.
        """
        budget = parents.shape[1]
        return cls(
            draft_token=node_tokens.reshape(-1),
            positions=positions,
            draft_token_num=budget,
            custom_mask=mask,
            kv_loc_plan=plan,
            kv_loc_cols=None if plan is None else slice(0, budget),
            tree_parents=parents.reshape(-1),
        )

    @property
    def budget(self) -> int:
        return self.draft_token_num


def block_input(width: int, device: torch.device) -> DFlashVerifyInput:
    """The head's forward over blocks of `width` rows."""
    empty = torch.empty((0,), dtype=torch.int64, device=device)
    return DFlashVerifyInput(
        draft_token=empty,
        positions=empty,
        draft_token_num=width,
        capture_hidden_mode=CaptureHiddenMode.NULL,
    )
