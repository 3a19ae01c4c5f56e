"""`DeviceOps`: the contract of a round's device-specific parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan

    from jetspec_sglang.bridge import DraftRunner
    from jetspec_sglang.tree import Tree
    from jetspec_sglang.verify.accept import Accepted


Linear: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Reservation:
    """KV lengths of a batch before and after a reservation, one int per request."""

    current: list[int]
    needed: list[int]

    @property
    def total(self) -> int:
        return sum(self.needed) - sum(self.current)


class DeviceOps(Protocol):
    """Slots, masks, KV moves and clocks. Tensors stay on the batch's device."""

    name: str
    attention_backend: str | None
    """Backend of the draft head, None for the target's own choice."""

    def reserve(self, batch: ScheduleBatch, reservation: Reservation) -> None:
        """Allocate the reservation's slots and enter them in the requests' slot rows."""
        ...

    def window(self, batch: ScheduleBatch, width: int) -> torch.Tensor:
        """Slots int64 [bs, width] of the positions seq_len .. seq_len + width - 1."""
        ...

    def mask(self, batch: ScheduleBatch, tree: Tree) -> torch.Tensor | None:
        """The ancestor mask as the attention backend takes it, None where it takes parents."""
        ...

    def compact(self, batch: ScheduleBatch, window: torch.Tensor, accepted: Accepted) -> None:
        """Move the accepted nodes' target KV to the front of each request's window."""
        ...

    def feed(
        self,
        draft: DraftRunner,
        taps: torch.Tensor,
        positions: torch.Tensor,
        plan: KVLocPlan,
        accepted: Accepted,
    ) -> None:
        """Project the accepted nodes' taps into the head's KV.

        taps [bs * B, K * hidden] and positions int64 [bs * B], by node in rank order.
        """
        ...

    def linear(self, weight: torch.Tensor) -> Linear:
        """x [rows, in] -> x @ weight.T, for a weight [out, in] that does not change."""
        ...

    def now(self) -> float:
        """Seconds on a clock that phases are measured with."""
        ...
