"""The batch to expect over the next interval, for each budget that could be chosen. No I/O.

Running requests follow dn/dt = λ − n / R(n, B): λ requests arrive a second and each stays
R = output tokens × seconds per token. Its rest point is Little's law n = λ·R(n, B), a fixed point
because a larger batch (and a smaller budget) lengthens R. The batch is followed from where it is
now over the interval, by exponential steps that each hold R still. Prefills, and lengths that are
not what they were, make λ·R miss the batch that is seen; its mean miss scales λ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .smoothing import Array

STEPS = 6


@dataclass(frozen=True, slots=True)
class Load:
    """One server's load as the projection needs it; requests, seconds, tokens."""

    batch: float  # running now
    waiting: float
    limit: float  # most requests that can run at once, math.inf if not known
    arrival_rate: float | None  # requests/s
    output_tokens: float | None  # per request
    scale: float = 1.0  # batch seen / batch by Little's law, a mean of late
    trend: float = 0.0  # requests/s, used when arrivals or output length are not known


def expected_batch(
    load: Load, horizon_s: float, seconds_per_token: Callable[[Array], Array], candidates: int
) -> Array:
    """Mean batch over ``horizon_s`` for each candidate, at least 1, shape [candidates].

    ``seconds_per_token`` maps a batch per candidate to the seconds one request needs per token.
    Waiting requests are taken to be admitted at once up to ``limit``.
    """
    start = min(load.batch + load.waiting, max(load.limit, 1.0))
    batch = np.full(candidates, start, dtype=np.float64)
    if load.arrival_rate is None or not load.output_tokens:
        mean = start + 0.5 * load.trend * horizon_s
        return np.full(candidates, min(max(mean, 1.0), max(load.limit, 1.0)))
    total = np.zeros(candidates)
    step = horizon_s / STEPS
    for _ in range(STEPS):
        stay = load.output_tokens * seconds_per_token(np.maximum(batch, 1.0))
        rest = load.scale * load.arrival_rate * stay
        after = rest + (batch - rest) * np.exp(-step / stay)
        after = np.minimum(after, max(load.limit, 1.0))
        total += 0.5 * (batch + after)
        batch = after
    return np.maximum(total / STEPS, 1.0)
