"""A server in closed form for tests of `decide`: true curves in, exact observations out, no I/O.

Each step lasts one interval at one batch; counters grow by what the curves say, with noise if
asked for. What is decided is in force from the next step on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from jetspec_controller.core import (
    RANK_EDGES,
    Action,
    BudgetCounters,
    BudgetReadback,
    CostCurve,
    CostPoint,
    CostSource,
    Decision,
    PolicyConfig,
    RoundCounters,
    Table,
    TargetObservation,
    TargetState,
    decide,
)
from jetspec_controller.core.table import lookup

TIERS = (1, 16, 32, 64, 128, 256)

Tau = Callable[[float], float]
Cost = Callable[[float, float], float]


def log_tau(per_octave: float) -> Tau:
    """τ that grows by as much with each doubling of the budget."""
    return lambda budget: 1.0 + per_octave * float(np.log2(budget))


def affine(read_s: float = 0.01, row_s: float = 5e-5, request_s: float = 0.0) -> Cost:
    """Seconds of a round: a fixed read, then by row and by request."""
    return lambda batch, budget: read_s + row_s * batch * budget + request_s * batch


def gauges(cost: Cost, top: int = 256, most_rows: int = 16384) -> CostCurve:
    """The start-up calibration: rows of as few requests as there can be."""
    rows = [2**k for k in range(most_rows.bit_length())]
    points = (CostPoint(float(r), cost(max(r / top, 1.0), min(r, top))) for r in rows)
    return CostCurve(tuple(points), CostSource.GAUGES)


@dataclass
class World:
    """One server, its true curves and the controller's state of it."""

    tau: Tau = field(default_factory=lambda: log_tau(1.0))
    cost: Cost = field(default_factory=affine)
    tiers: tuple[int, ...] = TIERS
    config: PolicyConfig = field(default_factory=PolicyConfig)
    batch: float = 1.0
    budget: int = 256
    table: Table = ()
    name: str = "server"
    noise: float = 0.0
    seed: int = 0
    now: float = 0.0
    started_at: float = 1000.0
    with_gauges: bool = True
    obeys: bool = True
    state: TargetState = field(default_factory=TargetState)
    totals: dict[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._calibration = gauges(self.cost)

    @property
    def in_force(self) -> int:
        """The budget of a round now."""
        return lookup(self.table, self.batch) if self.table else self.budget

    def best(self, batch: float | None = None) -> int:
        """The tier with the fewest true seconds per token."""
        n = self.batch if batch is None else batch
        return min(self.tiers, key=lambda b: (self.cost(n, b) / self.tau(b), b))

    def token_s(self, budget: int) -> float:
        """True seconds per token at the batch of now."""
        return self.cost(self.batch, budget) / self.tau(budget)

    def regret(self) -> float:
        """Share of speed lost by the budget in force."""
        return self.token_s(self.in_force) / self.token_s(self.best()) - 1.0

    def run(self) -> None:
        """One interval of rounds."""
        self.now += self.config.interval_s
        if self.batch < 1:
            return
        budget = self.in_force
        seconds = self.cost(self.batch, budget) * float(np.exp(self._rng.normal(0, self.noise)))
        rounds = self.config.interval_s / seconds
        requests = rounds * self.batch
        accepted = np.array([self.tau(min(e, budget)) - 1.0 for e in RANK_EDGES]) * requests
        if self.noise:
            steps = np.maximum(np.diff(accepted, prepend=0.0), 0.0)
            accepted = np.cumsum(self._rng.poisson(steps)).astype(float)
        row = np.array([rounds, requests, requests + accepted[-1], self.config.interval_s])
        old = self.totals.get(budget, np.zeros(4 + len(RANK_EDGES)))
        self.totals[budget] = old + np.concatenate((row, accepted))

    def counters(self) -> RoundCounters:
        """The counters as scraped."""
        return RoundCounters(
            tuple(
                BudgetCounters(budget, *row[:4].tolist(), tuple(row[4:].tolist()))
                for budget, row in sorted(self.totals.items())
            )
        )

    def observe(self) -> TargetObservation:
        """A whole, healthy observation."""
        return TargetObservation(
            target=self.name,
            observed_at=self.now,
            running_requests=self.batch,
            waiting_requests=0.0,
            token_usage=0.1,
            producer_timestamp=self.now + 600.0,
            producer_ticks_when_idle=True,
            started_at=self.started_at,
            budget=BudgetReadback(self.budget, self.tiers, self.tiers[-1], self.table),
            counters=self.counters(),
            cost=self._calibration if self.with_gauges else None,
        )

    def decide(self, observation: TargetObservation | None = None) -> Decision:
        """Decides on an observation and obeys."""
        seen = self.observe() if observation is None else observation
        decision, self.state = decide(self.config, seen, self.state, self.now)
        if self.obeys and decision.applies and decision.budget is not None:
            if decision.action is Action.SET_TABLE:
                self.budget, self.table = decision.table[0][1], decision.table
            else:
                self.budget, self.table = decision.budget, ()
        return decision

    def step(self, batch: float | None = None, **changes: object) -> Decision:
        """One interval, then a decision on it; ``changes`` replace fields of the observation."""
        if batch is not None:
            self.batch = batch
        self.run()
        return self.decide(replace(self.observe(), **changes))

    def steps(self, count: int, batch: float | None = None) -> list[Decision]:
        """Several of them."""
        return [self.step(batch) for _ in range(count)]

    def restart(self, budget: int) -> None:
        """A new process: counters from zero, the start budget."""
        self.started_at = self.now
        self.totals.clear()
        self.budget, self.table = budget, ()
