"""The policies to compare, with one protocol. No I/O.

A policy may choose at every round (it lives in the engine) and at every tick (it reads metrics from
outside). Only the oracle sees the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from jetspec_controller.core import (
    Action,
    Decision,
    PolicyConfig,
    Table,
    TargetObservation,
    TargetState,
    decide,
)
from jetspec_controller.core.table import lookup

from jetspec_simulator.curves import Device

START = 64
"""The default start budget of a server."""

DEFAULT = "model, table"
"""The governor as it ships."""


class Policy(Protocol):
    """``budget`` is called before each round, ``after_round`` after it. ``tick`` gets a scrape.
    ``widest`` is the largest budget of a table that the engine holds; None: that of each round.
    """

    name: str

    @property
    def widest(self) -> int | None: ...

    def budget(self, batch: int) -> int: ...

    def after_round(self, batch: int, accepted: float) -> None: ...

    def tick(self, observation: TargetObservation, now: float) -> Decision | None: ...


class _InEngine:
    """A policy without a controller."""

    name: str
    widest: int | None = None

    def after_round(self, batch: int, accepted: float) -> None:
        """Learns nothing."""

    def tick(self, observation: TargetObservation, now: float) -> Decision | None:
        """Reads nothing."""
        return None


class Static(_InEngine):
    """One budget for ever."""

    def __init__(self, budget: int) -> None:
        self.name = f"static {budget}"
        self._budget = budget

    def budget(self, batch: int) -> int:
        return self._budget


class Schedule(_InEngine):
    """A fixed schedule from batch to budget, like TensorRT-LLM's ``draft_len_schedule`` and vLLM's
    speculative tokens by batch size. It uses the largest tier that keeps rows at or below ``rows``,
    and at least the lowest tier that speculates.
    """

    def __init__(self, device: Device, rows: int = 256) -> None:
        self.name = f"schedule {rows} rows"
        self._tiers, self._rows = device.tiers[1:], rows

    def budget(self, batch: int) -> int:
        return max((t for t in self._tiers if t * batch <= self._rows), default=self._tiers[0])


class AcceptEma(_InEngine):
    """SGLang's adaptive rule, transferred from chain steps to trees: per batch slot, an EMA of
    accepted tokens moves through candidate budgets by the depth each can reach.

    A tree with 7 children per node reaches depth ⌈(B − 1) / 7⌉, at most the head's 15. From batch 8
    on, the largest two candidates are left out. From 32 on, only two remain. These are SGLang's
    defaults.
    """

    ALPHA, WARMUP, EVERY, DOWN = 0.2, 10, 5, -0.25

    def __init__(self, device: Device) -> None:
        self.name = "accept EMA"
        tiers = device.tiers
        self._slots: dict[int, _Slot] = {
            1: _Slot(tiers[1:]),
            8: _Slot(tiers[:-2]),
            32: _Slot(tiers[:2]),
        }

    def budget(self, batch: int) -> int:
        return self._slot(batch).budget

    def after_round(self, batch: int, accepted: float) -> None:
        self._slot(batch).update(accepted)

    def _slot(self, batch: int) -> _Slot:
        return self._slots[max((b for b in self._slots if b <= batch), default=1)]


class _Slot:
    """One batch slot of :class:`AcceptEma`."""

    def __init__(self, candidates: Sequence[int]) -> None:
        self._candidates = tuple(candidates)
        self._index = len(candidates) // 2
        self._ema = float(self._depth(self._index) - 1)
        self._seen = 0

    @property
    def budget(self) -> int:
        return self._candidates[self._index]

    def update(self, accepted: float) -> None:
        if self.budget > 1:
            self._ema += AcceptEma.ALPHA * (accepted - self._ema)
        self._seen += 1
        past = self._seen - AcceptEma.WARMUP
        if past <= 0 or past % AcceptEma.EVERY:
            return
        before = self._index
        while self._index > 0 and self._ema <= self._depth(self._index - 1) - 0.5 + AcceptEma.DOWN:
            self._index -= 1
        if self._index < before:
            return
        last = len(self._candidates) - 1
        while self._index < last and self._ema > self._depth(self._index) - 0.5:
            self._index += 1

    def _depth(self, index: int) -> int:
        return min(-(-(self._candidates[index] - 1) // 7), 15)


class Oracle(_InEngine):
    """The true fastest tier for the true batch of every round."""

    def __init__(self, device: Device) -> None:
        self.name = "oracle"
        self._device = device
        self._best: dict[int, int] = {}

    def budget(self, batch: int) -> int:
        if batch not in self._best:
            self._best[batch] = self._device.best(batch)
        return self._best[batch]


@dataclass(slots=True)
class Governed:
    """The real ``decide``. It gets what a scrape shows, and its decisions are applied."""

    name: str
    config: PolicyConfig
    current: int
    table: Table = ()
    state: TargetState = field(default_factory=TargetState)

    def budget(self, batch: int) -> int:
        return lookup(self.table, batch) if self.table else self.current

    @property
    def widest(self) -> int:
        """The largest budget of the table."""
        return max((budget for _, budget in self.table), default=self.current)

    def after_round(self, batch: int, accepted: float) -> None:
        """Learns from the counters instead."""

    def tick(self, observation: TargetObservation, now: float) -> Decision:
        decision, self.state = decide(self.config, observation, self.state, now)
        if decision.action is Action.SET_BUDGET and decision.applies and decision.budget:
            self.current, self.table = decision.budget, ()
        elif decision.action is Action.SET_TABLE and decision.applies:
            self.table = decision.table
        return decision


def contenders(device: Device, config: PolicyConfig) -> list[Policy]:
    """Every policy of the comparison, the governor both with a budget and with a table."""

    def publishing(table: bool) -> PolicyConfig:
        return config.model_copy(update={"publish_table": table})

    return [
        *(Static(tier) for tier in device.tiers),
        AcceptEma(device),
        Schedule(device),
        Governed("model, budget", publishing(False), START),
        Governed(DEFAULT, publishing(True), START),
        Oracle(device),
    ]
