"""`DraftState`: the state of running requests between rounds.

SGLang keeps it as the batch's `spec_info` between rounds, filters and merges it with the batch, and
asks it to prepare the next round. The budget of a round is fixed here, after requests joined or
left and before the forward pass. So a round has one budget, even if a control call arrives
meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from sglang.srt.speculative.spec_info import SpecInput, SpecInputType

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch


class RoundPreparer(Protocol):
    """Fixes a round's budget and reserves its KV slots (the worker)."""

    def prepare_round(self, batch: ScheduleBatch) -> int:
        """Reserve KV for the batch's next round; returns its budget."""
        ...


@dataclass
class DraftState(SpecInput):
    """Anchors and lengths of the batch's requests.

    bonus_tokens: int64 [bs], each request's last committed token, the next anchor.
    new_seq_lens: int64 [bs], committed positions in the KV cache (the anchor is not).
    budget: the latched budget of the coming round, 0 before it is prepared.
    The remaining fields are read by SGLang's overlap relay; this algorithm leaves them None.
    """

    bonus_tokens: torch.Tensor
    new_seq_lens: torch.Tensor
    preparer: RoundPreparer
    budget: int = 0
    future_indices: torch.Tensor | None = None
    topk_p: torch.Tensor | None = None
    topk_index: torch.Tensor | None = None
    hidden_states: torch.Tensor | None = None

    def __post_init__(self) -> None:
        # The type enumeration of SpecInput is closed; DFLASH's is the one whose relay fits.
        super().__init__(spec_input_type=SpecInputType.DFLASH_DRAFT)
        self.num_tokens_per_req = 1
        self.num_tokens_for_logprob_per_req = 1

    def prepare_for_decode(self, batch: ScheduleBatch) -> None:
        """SGLang's call before every round, between steps."""
        if batch.batch_size():
            self.budget = self.preparer.prepare_round(batch)

    def filter_batch(
        self, new_indices: torch.Tensor, new_indices_cpu: list[int] | None = None
    ) -> None:
        """Keep the requests at `new_indices`."""
        if self.future_indices is not None:
            self.future_indices = self.future_indices[new_indices]
            return
        self.bonus_tokens = self.bonus_tokens[new_indices]
        self.new_seq_lens = self.new_seq_lens[new_indices]

    def merge_batch(self, spec_info: DraftState) -> None:
        """Append the requests of another batch."""
        if self.future_indices is not None:
            assert spec_info.future_indices is not None
            self.future_indices = torch.cat([self.future_indices, spec_info.future_indices])
            return
        self.bonus_tokens = torch.cat([self.bonus_tokens, spec_info.bonus_tokens])
        self.new_seq_lens = torch.cat([self.new_seq_lens, spec_info.new_seq_lens])
