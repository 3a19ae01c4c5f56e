"""What `decide` carries from tick to tick; bounded in size, opaque to everything else."""

from __future__ import annotations

from dataclasses import dataclass

from .types import BudgetState, RoundCounters, Table


@dataclass(frozen=True, slots=True)
class AcceptMemory:
    """Decayed counts behind τ at one edge, kept when the budget moves below the edge."""

    edge: int
    accepted: float
    request_rounds: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class CostMemory:
    """Measured seconds per round around one (batch, budget); means weighted by decayed rounds."""

    budget: int
    batch: float
    seconds: float
    rounds: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class TargetState:
    """What `decide` carries from tick to tick for one server; bounded in size. ``TargetState()``
    is the start.
    """

    tick: int = 0
    last_at: float | None = None
    last_good_at: float | None = None
    counters: RoundCounters | None = None
    started_at: float | None = None
    producer_timestamp: float | None = None
    producer_moved_at: float | None = None
    known: BudgetState | None = None  # last read-back
    desired_budget: int | None = None
    desired_table: Table = ()
    changed_at: float | None = None
    rose_last: bool = False
    rise_wanted_ticks: int = 0
    reversals: int = 0
    batch: float | None = None
    accept: tuple[AcceptMemory, ...] = ()
    cost: tuple[CostMemory, ...] = ()
    probe_at: float | None = None
    probe_failures: int = 0
