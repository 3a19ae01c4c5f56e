"""The batch to expect over the next seconds, for each budget that could be chosen. No I/O.

Running requests follow dn/dt = λ − n / R(n, B): λ requests arrive per second, and each stays R =
output tokens × seconds per token. Its rest point is Little's law n = λ·R(n, B), a fixed point
because a larger batch (and a smaller budget) lengthens R. The batch is followed from its present
value over the horizon, in exponential steps with a constant R each. Prefills and changed lengths
make λ·R differ from the observed batch. The mean difference scales λ. A server that has finished no
request yet has no mean length. Then requests arrive and none leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jetspec_controller.core.smoothing import Array

STEPS = 6

TokenSeconds = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """One server's load as the projection needs it; requests, seconds, tokens."""

    batch: float  # running now
    waiting: float
    limit: float  # most requests that run at once, as seen; math.inf if not known
    arrival_rate: float | None  # requests/s
    output_tokens: float | None  # per request
    scale: float = 1.0  # observed batch / batch by Little's law, a recent mean
    slots: float = math.inf  # most requests that the server may run at once
    kv_tokens: float | None = None  # size of the KV cache
    request_tokens: float | None = None  # that a running request holds in it


def expected_batch(
    load: ServerLoad, horizon_s: float, seconds_per_token: TokenSeconds, candidates: int
) -> Array:
    """Mean batch over ``horizon_s`` for each candidate, at least 1, shape [candidates].

    ``seconds_per_token`` maps a batch per candidate to the seconds one request needs per token.
    Waiting requests are assumed to be admitted at once, up to ``limit``.
    """
    path = _path(load, horizon_s, seconds_per_token, candidates)
    mean: Array = 0.5 * (path[1:] + path[:-1]).mean(0)
    return np.maximum(mean, 1.0)


def peak_batch(
    load: ServerLoad, horizon_s: float, seconds_per_token: TokenSeconds, candidates: int
) -> Array:
    """The largest batch within ``horizon_s`` for each candidate, at least 1, as above."""
    peak: Array = _path(load, horizon_s, seconds_per_token, candidates).max(0)
    return np.maximum(peak, 1.0)


def _path(
    load: ServerLoad, horizon_s: float, seconds_per_token: TokenSeconds, candidates: int
) -> Array:
    """The batch at ``STEPS`` + 1 equidistant times, shape [STEPS + 1, candidates]."""
    limit = max(load.limit, 1.0)
    start = min(load.batch + load.waiting, limit)
    path = np.full((STEPS + 1, candidates), start, dtype=np.float64)
    if load.arrival_rate is None or not load.output_tokens:
        times = np.linspace(0.0, horizon_s, STEPS + 1)
        return np.minimum(path + (load.arrival_rate or 0.0) * times[:, None], limit)
    step = horizon_s / STEPS
    for k in range(STEPS):
        stay = load.output_tokens * seconds_per_token(np.maximum(path[k], 1.0))
        rest = load.scale * load.arrival_rate * stay
        path[k + 1] = np.minimum(rest + (path[k] - rest) * np.exp(-step / stay), limit)
    return path
