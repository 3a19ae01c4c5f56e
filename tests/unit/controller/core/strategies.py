"""Hypothesis strategies: true curves, loads, and observations with anything in them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from jetspec_controller.core import (
    RANK_EDGES,
    BudgetCounters,
    BudgetReadback,
    CostCurve,
    CostPoint,
    CostSource,
    Fault,
    LatencyPercentiles,
    RoundCounters,
    Signal,
    SourceError,
    TargetObservation,
)

from tests.support.world import TIERS, Tau, affine

HOST_TIERS = (1, 2, 4, 8, 16, 32, 64)
tiers = st.sampled_from([TIERS, HOST_TIERS])
batches = st.integers(1, 200)


@st.composite
def taus(draw: st.DrawFn) -> Tau:
    """Increasing, and concave in the budget: each octave adds less than twice the last one."""
    first = draw(st.floats(0.2, 0.9))
    steps = [first]
    for _ in range(9):
        steps.append(steps[-1] * draw(st.floats(0.6, 1.2)))
    values = 1.0 + np.cumsum([0.0, *steps])
    return lambda budget: float(np.interp(np.log2(budget), np.arange(len(values)), values))


@st.composite
def row_costs(draw: st.DrawFn):
    """Seconds that depend on rows alone, bound by memory and then by rows."""
    return affine(draw(st.floats(0.002, 0.05)), draw(st.floats(5e-6, 5e-4)))


@st.composite
def request_costs(draw: st.DrawFn):
    """Seconds by rows and by requests."""
    return affine(
        draw(st.floats(0.002, 0.05)), draw(st.floats(5e-6, 5e-4)), draw(st.floats(0.0, 3e-3))
    )


odd = st.one_of(
    st.none(),
    st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 0.5, 1e12]),
    st.floats(0, 100),
)
counts = st.one_of(st.sampled_from([float("nan"), -1.0, 0.0]), st.floats(0, 1e6))


@st.composite
def counters(draw: st.DrawFn) -> RoundCounters:
    length = draw(st.sampled_from([len(RANK_EDGES), 3]))
    rows = [
        BudgetCounters(
            budget,
            *(draw(counts) for _ in range(4)),
            tuple(draw(st.lists(counts, min_size=length, max_size=length))),
        )
        for budget in draw(st.lists(st.sampled_from([1, 16, 33, 64, 256]), unique=True))
    ]
    return RoundCounters(tuple(rows))


@st.composite
def observations(draw: st.DrawFn, at: float) -> TargetObservation:
    """Anything that a source could hand over, and much that none should."""
    cost = st.builds(
        CostCurve,
        st.lists(st.builds(CostPoint, counts, counts), max_size=4).map(tuple),
        st.sampled_from(CostSource),
    )
    budget = st.builds(
        BudgetReadback,
        budget=st.integers(1, 300),
        tiers=st.sampled_from([TIERS, (1,), (3, 5), ()]),
        max_budget=st.sampled_from([1, 64, 256]),
        table=st.sampled_from([(), ((1, 64), (8, 16)), ((4, 32),)]),
        consistent=st.booleans(),
    )
    errors = st.builds(SourceError, st.sampled_from(Signal), st.sampled_from(Fault))
    return TargetObservation(
        target="server",
        observed_at=at - draw(st.sampled_from([0.0, 5.0, 100.0])),
        running_requests=draw(odd),
        waiting_requests=draw(odd),
        max_running_requests=draw(odd),
        token_usage=draw(odd),
        arrival_rate=draw(odd),
        mean_output_tokens=draw(odd),
        tokens_per_second=draw(odd),
        producer_timestamp=draw(odd),
        producer_ticks_when_idle=draw(st.booleans()),
        started_at=draw(st.sampled_from([None, 1.0, 2.0])),
        budget=draw(st.none() | budget),
        counters=draw(st.none() | counters()),
        cost=draw(st.none() | cost),
        latency=draw(st.none() | st.builds(LatencyPercentiles, st.just(0.99), odd, odd)),
        ages=tuple(
            draw(st.lists(st.tuples(st.sampled_from(Signal), st.floats(-5, 50)), max_size=2))
        ),
        errors=tuple(draw(st.lists(errors, max_size=2))),
    )
