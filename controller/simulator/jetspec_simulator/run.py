"""One policy on one trace: the event loop between arrivals, rounds and ticks. No I/O.

The observation given to the policy at each tick is built from what the server's metrics would show
at that moment: gauges with their lag, counters, round-cost averages, and the read-back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jetspec_controller.core import (
    BudgetReadback,
    CostCurve,
    CostPoint,
    CostSource,
    Decision,
    TargetObservation,
)

from jetspec_simulator.arrivals import ClosedTrace, OpenTrace, Request, Trace
from jetspec_simulator.curves import Device
from jetspec_simulator.policies import Policy
from jetspec_simulator.server import Live, Server, ServerSpec

RATE_WINDOW_TICKS = 5


@dataclass(frozen=True, slots=True)
class RunResult:
    """The results of a run, in seconds. TPOT and TTFT are per request; goodput is the output tokens
    per second of only those requests that met the bounds.

    ``token_s`` is the time of all requests after their first token, divided by all their tokens. A
    mean of TPOT would give an answer of three tokens the same weight as one of three hundred. Short
    answers mainly measure how often a prefill interrupts them, not the rounds.
    """

    policy: str
    trace: str
    requests: int
    tokens: int
    duration_s: float
    token_s: float
    p99_tpot_s: float
    goodput: float
    changes: int  # budgets or tables sent
    retractions: int

    @property
    def rate(self) -> float:
        """Output tokens a second."""
        return self.tokens / self.duration_s


@dataclass(frozen=True, slots=True)
class LatencyBounds:
    """Service-level bounds of a request; infinite without a bound."""

    tpot_s: float = float("inf")
    ttft_s: float = float("inf")


def run(
    policy: Policy,
    device: Device,
    trace: Trace,
    spec: ServerSpec,
    seed: int,
    interval_s: float = 2.0,
    bounds: LatencyBounds | None = None,
    on_tick: Callable[[Decision, Server], None] | None = None,
) -> RunResult:
    """Runs the trace to its end (open: until the last request is done)."""
    server = Server(device, spec, seed)
    source = _Source(trace, server, seed)
    window: deque[tuple[float, int, int, int]] = deque(maxlen=RATE_WINDOW_TICKS + 1)
    next_tick, changes = interval_s, 0
    while not source.over():
        source.feed()
        if server.busy:
            batch = min(len(server.running) + len(server.waiting), spec.max_running)
            budget = policy.budget(batch)
            served = max(len(server.running), 1)
            before = server.totals[budget].tokens if budget in server.totals else 0
            ended = server.step(budget, policy.widest)
            done = server.totals[budget].tokens - before if budget in server.totals else 0
            policy.after_round(batch, done / served - 1.0)
            source.ended(ended)
        else:
            server.now = min(source.next_at(), max(next_tick, server.now))
        while server.now >= next_tick:
            window.append((next_tick, server.arrived, *_output(server)))
            decision = policy.tick(_observe(policy, server, window, next_tick), next_tick)
            if decision is not None:
                changes += decision.applies
                if on_tick is not None:
                    on_tick(decision, server)
            next_tick += interval_s
    return _result(policy.name, trace.name, server, bounds or LatencyBounds(), changes)


class _Source:
    """Feeds a trace into a server."""

    def __init__(self, trace: Trace, server: Server, seed: int) -> None:
        self._trace, self._server = trace, server
        self._rng = np.random.default_rng(seed + 1)
        self._open = deque(trace.requests) if isinstance(trace, OpenTrace) else None
        self._active: set[int] = set()

    def feed(self) -> None:
        """Submits all that is due."""
        now = self._server.now
        if self._open is not None:
            while self._open and self._open[0].arrival_s <= now:
                self._server.submit(self._open.popleft())
            return
        assert isinstance(self._trace, ClosedTrace)
        for client in range(self._trace.clients(now)):
            if client not in self._active:
                self._active.add(client)
                prompts, outputs = self._trace.lengths.draw(self._rng, 1)
                self._server.submit(Request(now, prompts[0], outputs[0]), client)

    def ended(self, lives: list[Live]) -> None:
        self._active -= {live.client for live in lives if live.client is not None}

    def next_at(self) -> float:
        """The next time at which an event may be due while the server is idle."""
        if self._open is not None:
            return self._open[0].arrival_s if self._open else float("inf")
        return self._server.now + 0.01

    def over(self) -> bool:
        if self._open is not None:
            return not self._open and not self._server.busy
        assert isinstance(self._trace, ClosedTrace)
        return self._server.now >= self._trace.duration_s


def _output(server: Server) -> tuple[int, int]:
    return sum(t.tokens for t in server.totals.values()), len(server.finished)


def _observe(
    policy: Policy,
    server: Server,
    window: deque[tuple[float, int, int, int]],
    now: float,
) -> TargetObservation:
    (t0, arrived0, tokens0, finished0), (t1, arrived1, tokens1, finished1) = window[0], window[-1]
    span, finished = t1 - t0, finished1 - finished0
    running, waiting = server.published if server.busy else (0, 0)
    table = getattr(policy, "table", ())
    return TargetObservation(
        target="simulated",
        observed_at=now,
        running_requests=running,
        waiting_requests=waiting,
        max_running_requests=server.spec.max_running,
        token_usage=server.kv_used / server.spec.kv_tokens,
        kv_tokens=float(server.spec.kv_tokens),
        arrival_rate=(arrived1 - arrived0) / span if span > 0 else None,
        mean_output_tokens=(tokens1 - tokens0) / finished if finished else None,
        tokens_per_second=(tokens1 - tokens0) / span if span > 0 else None,
        budget=BudgetReadback(
            getattr(policy, "current", server.budget),
            server.device.tiers,
            server.device.tiers[-1],
            table,
            block_size=server.spec.block,
        ),
        counters=server.counters(),
        cost=CostCurve(
            tuple(CostPoint(float(rows), s) for rows, s in sorted(server.costs.items())),
            CostSource.GAUGES,
        ),
    )


def _result(
    policy: str, trace: str, server: Server, bounds: LatencyBounds, changes: int
) -> RunResult:
    done = [r for r in server.finished if r.request.output_tokens > 1 and r.first_token_at]
    first = np.array([r.first_token_at for r in done])
    arrival = np.array([r.request.arrival_s for r in done])
    end = np.array([r.finished_at for r in done])
    tokens = np.array([r.request.output_tokens for r in done])
    tpot = (end - first) / (tokens - 1)
    ttft = first - arrival
    good = (tpot <= bounds.tpot_s) & (ttft <= bounds.ttft_s)
    return RunResult(
        policy,
        trace,
        len(done),
        _output(server)[0],
        server.now,
        float((end - first).sum() / (tokens - 1).sum()),
        float(np.percentile(tpot, 99)),
        float(tokens[good].sum() / server.now),
        changes,
        server.retractions,
    )
