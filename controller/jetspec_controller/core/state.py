"""The state that `decide` carries from tick to tick. Its size is bounded, and no other code looks
inside."""

from __future__ import annotations

from dataclasses import dataclass

from jetspec_controller.core.types import BudgetReadback, CostCurve, RoundCounters, Table


@dataclass(frozen=True, slots=True)
class AcceptMemory:
    """Decayed counts of the rounds run at one budget; ``accepted[i]`` has rank < edges[i]."""

    budget: int
    request_rounds: float
    accepted: tuple[float, ...]
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
class ProbeWait:
    """When batches of one size may be probed again."""

    size: int
    until: float
    losses: int


@dataclass(frozen=True, slots=True)
class TargetState:
    """The carried state of one server. ``TargetState()`` is the start."""

    tick: int = 0
    last_at: float | None = None
    usable_at: float | None = None  # last time the load could be used; first tick if never

    # the server as last seen
    counters: RoundCounters | None = None
    started_at: float | None = None
    restarted: bool = False  # restarted, and not yet seen running what was decided
    producer_timestamp: float | None = None
    producer_moved_at: float | None = None
    known: BudgetReadback | None = None

    # load
    batch: float | None = None
    waiting: float = 0.0
    arrival_rate: float | None = None
    output_tokens: float | None = None
    request_tokens: float | None = None  # that a running request holds in the KV cache
    little: float = 1.0  # batch seen / batch by Little's law

    # curves
    base: CostCurve | None = None  # rows → seconds as first seen since the server's start
    accept: tuple[AcceptMemory, ...] = ()
    cost: tuple[CostMemory, ...] = ()

    # what was decided, and when it may change
    budget: int | None = None
    table: Table = ()
    cut_at: float | None = None
    rose_at: float | None = None
    rise_ticks: int = 0  # consecutive ticks that wanted a rise
    rise_to: int | None = None  # the lowest budget wanted in those ticks
    probe_budget: int | None = None  # being tried, no verdict yet
    probe_from: int = 1  # where a lost probe goes back to,
    probe_table: Table = ()  # and the table that held there
    probe_batch: float = 1.0  # the batch it was proposed for
    probe_until: float = 0.0  # verdict at this time at the latest
    probe_waits: tuple[ProbeWait, ...] = ()
    explore_at: float | None = None  # no step to measure a missing curve before
    resend_at: float | None = None  # not sent again before, while the read-back differs
    resends: int = 0
