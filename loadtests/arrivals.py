"""When each request is due: the schedule of an open loop.

Contract: pure except `schedule`, which reads the trace of `--arrivals trace`. The same
configuration gives the same schedule on every machine. Workers take every n-th arrival of it, so
that together they send what one worker alone would send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadtests.config import ConfigError, LoadConfig
from loadtests.profiles import Profile
from loadtests.traces import read_trace


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that is due `at` seconds after the start; lengths are those of a trace, or 0."""

    index: int
    at: float
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Arrivals in order, and the number of broken trace lines that were skipped."""

    arrivals: tuple[Arrival, ...]
    broken_lines: int = 0


def schedule(config: LoadConfig) -> Schedule:
    """Arrivals of an open loop. ConfigError where there are none; TraceError for a bad trace."""
    whole = _replayed(config) if config.arrivals == "trace" else _made(config)
    if not config.requests:
        return whole
    return Schedule(whole.arrivals[: config.requests], whole.broken_lines)


def _made(config: LoadConfig) -> Schedule:
    profile = Profile.of(config)
    times = profile.when(_unit_rate(config, profile.total))
    if not times:
        raise ConfigError(
            f"--rate {config.rate:g} over --seconds {config.seconds:g} gives no request"
        )
    return Schedule(tuple(Arrival(i, at) for i, at in enumerate(times)))


def split(arrivals: Sequence[Arrival], worker: int, workers: int) -> list[Arrival]:
    """The share of worker number `worker` of `workers`."""
    if not 0 <= worker < workers:
        raise ValueError(f"worker {worker} of {workers}")
    return list(arrivals[worker::workers])


def _unit_rate(config: LoadConfig, total: float) -> list[float]:
    """Points of a renewal process with mean gap 1, up to `total`."""
    if config.arrivals == "constant":
        return [float(i) for i in range(int(np.ceil(total)))]
    shape = config.burstiness if config.arrivals != "poisson" else 1.0
    random = np.random.default_rng(config.seed)
    points: list[float] = []
    last = 0.0
    while True:
        gaps = random.gamma(shape, 1.0 / shape, size=256)
        for point in last + np.cumsum(gaps):
            if point >= total:
                return points
            points.append(float(point))
        last = points[-1]


def _replayed(config: LoadConfig) -> Schedule:
    trace = read_trace(Path(config.trace), skip_broken=config.skip_broken_lines)
    start = trace.requests[0].at
    arrivals: list[Arrival] = []
    for request in trace.requests:
        at = (request.at - start) * config.slowdown_factor
        if at >= config.seconds:
            break
        arrivals.append(
            Arrival(len(arrivals), at, request.prompt_tokens, max(1, request.output_tokens))
        )
    return Schedule(tuple(arrivals), trace.broken_lines)
