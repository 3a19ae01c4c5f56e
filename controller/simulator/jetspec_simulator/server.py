"""A discrete-event model of one server: continuous batching, rounds, prefill, a KV limit. No I/O.

As SGLang does it, waiting requests are admitted first come first served while there is room, their
prompts are prefilled in chunks before the next round, and a round then serves every running request
at one budget. For every running request, space for twice the widest round of the table is kept
free. If this does not fit, the youngest request is retracted and starts again with a prefill of its
tokens. No request is admitted until one has ended. Time is simulated, in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from jetspec_controller.core import RANK_EDGES, BudgetCounters, RoundCounters, Table
from jetspec_controller.core.reserve import ROUNDS_KEPT

from jetspec_simulator.arrivals import Request
from jetspec_simulator.curves import Device


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The limits of a simulated server, in addition to its device."""

    max_running: int = 64
    kv_tokens: int = 400_000
    prefill_tokens_s: float = 40_000.0
    prefill_fixed_s: float = 0.004
    chunk_tokens: int = 8192
    round_noise: float = 0.05  # sigma of the logarithm of a round's seconds
    block: int = 16  # a round is at least as wide as the head's block
    gauge_every_rounds: int = 15  # running and waiting are published this often


@dataclass(slots=True)
class Live:
    """A request inside the server."""

    request: Request
    done_tokens: int = 0
    first_token_at: float | None = None
    finished_at: float = 0.0
    client: int | None = None


@dataclass(slots=True)
class Totals:
    """Counters of the rounds run at one budget."""

    rounds: int = 0
    request_rounds: int = 0
    tokens: int = 0
    seconds: float = 0.0
    accepted: np.ndarray = field(default_factory=lambda: np.zeros(len(RANK_EDGES)))


class Server:
    """Advance it with :meth:`step`; read what a scrape would see from its attributes."""

    def __init__(self, device: Device, spec: ServerSpec, seed: int) -> None:
        self.device, self.spec = device, spec
        self.now = 0.0
        self.table: Table = ()
        self.budget = device.tiers[-1]
        self.waiting: deque[Live] = deque()
        self.running: list[Live] = []
        self.finished: list[Live] = []
        self.totals: dict[int, Totals] = {}
        self.costs: dict[int, float] = {}
        self.published = (0, 0)
        self.arrived = 0
        self.retractions = 0
        self._full = False
        self.rounds = 0
        self._rng = np.random.default_rng(seed)
        self._round_s: dict[tuple[int, int], float] = {}
        self._steps = {
            tier: np.diff(device.tau.many(np.minimum((1, *RANK_EDGES), tier).astype(float)))
            for tier in device.tiers
        }
        self._calibrate()

    def submit(self, request: Request, client: int | None = None) -> None:
        """Puts a request in the queue now."""
        self.waiting.append(Live(request, client=client))
        self.arrived += 1

    @property
    def busy(self) -> bool:
        """Whether there is anything to do without a new request."""
        return bool(self.running or self.waiting)

    @property
    def kv_used(self) -> int:
        """Tokens in the KV cache."""
        return sum(r.request.prompt_tokens + r.done_tokens for r in self.running)

    def step(self, budget: int, widest: int | None = None) -> list[Live]:
        """Admits, prefills, and runs one round at ``budget`` (a tier) of a table whose largest
        budget is ``widest``. Returns who finished.
        """
        admitted = self._admit()
        if admitted:
            self._prefill(admitted)
        self._make_room(max(widest or budget, self.spec.block))
        ended = self._round(budget) if self.running else []
        if self.rounds % self.spec.gauge_every_rounds == 0 or admitted or not self.running:
            self.published = (len(self.running), len(self.waiting))
        return ended

    def counters(self) -> RoundCounters:
        """The totals of every budget that has run."""
        return RoundCounters(
            tuple(
                BudgetCounters(
                    budget, t.rounds, t.request_rounds, t.tokens, t.seconds, tuple(t.accepted)
                )
                for budget, t in sorted(self.totals.items())
            )
        )

    def _admit(self) -> list[Live]:
        admitted: list[Live] = []
        if not self.waiting or (self._full and self.running):
            return admitted
        used = self.kv_used
        while self.waiting and len(self.running) < self.spec.max_running:
            need = self.waiting[0].request.prompt_tokens + self.waiting[0].done_tokens
            if used + need > 0.95 * self.spec.kv_tokens and self.running:
                break
            used += need
            live = self.waiting.popleft()
            self.running.append(live)
            admitted.append(live)
        return admitted

    def _prefill(self, admitted: list[Live]) -> None:
        tokens = sum(r.request.prompt_tokens + r.done_tokens for r in admitted)
        chunks = -(-tokens // self.spec.chunk_tokens)
        self.now += tokens / self.spec.prefill_tokens_s + chunks * self.spec.prefill_fixed_s
        for live in admitted:
            live.done_tokens = max(live.done_tokens, 1)
            if live.first_token_at is None:
                live.first_token_at = self.now

    def _make_room(self, width: int) -> None:
        used = self.kv_used
        while (
            len(self.running) > 1
            and used + ROUNDS_KEPT * width * len(self.running) > self.spec.kv_tokens
        ):
            live = self.running.pop()
            used -= live.request.prompt_tokens + live.done_tokens
            self.waiting.appendleft(live)
            self.retractions += 1
            self._full = True

    def _round(self, budget: int) -> list[Live]:
        batch = len(self.running)
        noise = self._rng.normal(0.0, self.spec.round_noise)
        place = batch, budget
        if place not in self._round_s:
            self._round_s[place] = self.device.surface.round_s(batch, budget)
        seconds = self._round_s[place] * math.exp(noise)
        self.now += seconds
        self.rounds += 1
        accepted = self._rng.poisson(self._steps[budget], (batch, len(RANK_EDGES)))
        totals = self.totals.setdefault(budget, Totals())
        totals.rounds += 1
        totals.request_rounds += batch
        totals.seconds += seconds
        totals.accepted += np.cumsum(accepted.sum(0))
        self._learn_cost(batch * budget, seconds)

        ended: list[Live] = []
        kept: list[Live] = []
        for live, extra in zip(self.running, accepted.sum(1).tolist(), strict=True):
            take = min(1 + extra, live.request.output_tokens - live.done_tokens)
            live.done_tokens += max(take, 0)
            totals.tokens += max(take, 0)
            (ended if live.done_tokens >= live.request.output_tokens else kept).append(live)
        for live in ended:
            live.finished_at = self.now
        self.running = kept
        self.finished += ended
        self._full = self._full and not ended
        return ended

    def _calibrate(self) -> None:
        """The start-up calibration of the gauges, with as few requests as possible for each number
        of rows."""
        top = self.device.tiers[-1]
        rows = 1
        while rows <= top * self.spec.max_running:
            tier = max(t for t in self.device.tiers if t <= rows)
            self.costs[rows] = self.device.surface.round_s(rows / tier, tier)
            rows *= 2

    def _learn_cost(self, rows: int, seconds: float) -> None:
        key = 2 ** round(float(np.log2(rows)))
        old = self.costs.get(key, seconds)
        self.costs[key] = old + 0.1 * (seconds - old)
