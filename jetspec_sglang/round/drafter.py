"""`Drafter`: one forward of the head for the whole batch, scored against the target's LM head.

It owns SGLang's runner of the head. The block of a request is its anchor and mask tokens; a causal
head's block is cut to the depths a budget can hold, which changes no earlier row.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from jetspec_sglang import bridge
from jetspec_sglang.bridge.inputs import block_input
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.round.scoring import Scorer

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput

logger = logging.getLogger(__name__)


class Drafter:
    """Candidates of every depth for every request of a batch."""

    def __init__(
        self,
        draft: bridge.DraftRunner,
        config: HeadConfig,
        scorer: Scorer,
        trace: Path | None = None,
    ) -> None:
        """`trace`: file that every round's candidates are appended to."""
        self.runner = draft
        self.config = config
        self._scorer = scorer
        self._trace = trace
        self._inputs: dict[int, DFlashVerifyInput] = {}

    def block_width(self, budget: int) -> int:
        """Block rows a round at `budget` drafts with, 0 at budget 1."""
        if budget == 1:
            return 0
        if not self.config.causal or self.config.draft_shift:
            return self.config.block_size
        return min(self.config.block_size, budget)

    def depths(self, budget: int) -> int:
        """Depths that a round at `budget` scores."""
        return max(self.block_width(budget) - 1, 0)

    def draft(
        self,
        batch: ScheduleBatch,
        anchors: torch.Tensor,
        budget: int,
        plan: KVLocPlan,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Candidates (tokens int64, log-probs float32), each [bs, D, W], best first.

        anchors: int64 [bs]. The log-probs are normalised over the draft vocabulary.
        """
        bs, width = anchors.numel(), self.block_width(budget)
        block = torch.full((bs, width), self.config.mask_token_id, device=anchors.device)
        block[:, 0] = anchors
        positions = batch.seq_lens[:, None] + torch.arange(width, device=anchors.device)
        forward_batch = bridge.draft_block_batch(
            self.runner,
            batch,
            block_ids=block,
            positions=positions,
            plan=plan,
            spec_info=self._block_input(width, anchors.device),
        )
        hidden = self.runner.runner.forward(forward_batch).logits_output.hidden_states
        rows = slice(0, width - 1) if self.config.draft_shift else slice(1, width)
        tokens, logprobs = self._scorer.top(hidden.view(bs, width, -1)[:, rows])
        if self._trace is not None:
            self._write_trace(batch, anchors, tokens, logprobs)
        return tokens, logprobs

    def _block_input(self, width: int, device: torch.device) -> DFlashVerifyInput:
        if width not in self._inputs:
            self._inputs[width] = block_input(width, device)
        return self._inputs[width]

    def _write_trace(
        self,
        batch: ScheduleBatch,
        anchors: torch.Tensor,
        tokens: torch.Tensor,
        logprobs: torch.Tensor,
    ) -> None:
        assert self._trace is not None
        with self._trace.open("a", encoding="utf-8") as sink:
            for i, req in enumerate(batch.reqs):
                record = {
                    "rid": req.rid,
                    "position": int(batch.seq_lens[i]),
                    "anchor": int(anchors[i]),
                    "tokens": tokens[i].tolist(),
                    "logprobs": logprobs[i].tolist(),
                }
                sink.write(json.dumps(record) + "\n")
