"""Arrival times and lengths of requests: recorded traces, and generators with a seed.

Only the two loaders read files; everything else is pure. A trace is either open (arrival times are
given) or closed (a number of clients that each send the next request when the last one ends).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Request:
    """One request; seconds from the start of the trace, tokens."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class OpenTrace:
    """Requests with given arrival times, in order."""

    name: str
    requests: tuple[Request, ...]

    @property
    def duration_s(self) -> float:
        return self.requests[-1].arrival_s


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths with these means; ``spread`` is the sigma of the logarithm."""

    prompt_tokens: int = 200
    output_tokens: int = 256
    spread: float = 0.6

    def draw(self, rng: np.random.Generator, count: int) -> tuple[list[int], list[int]]:
        """``count`` prompt and output lengths, each at least 1."""

        def lengths(mean: int) -> list[int]:
            mu = np.log(mean) - 0.5 * self.spread**2
            drawn = np.rint(rng.lognormal(mu, self.spread, count))
            return [max(int(length), 1) for length in drawn]

        return lengths(self.prompt_tokens), lengths(self.output_tokens)


@dataclass(frozen=True, slots=True)
class ClosedTrace:
    """Clients at work by time: ``phases`` are (start seconds, clients), the first at 0."""

    name: str
    phases: tuple[tuple[float, int], ...]
    duration_s: float
    lengths: Lengths = Lengths()

    def clients(self, now: float) -> int:
        """How many clients are at work at a time."""
        count = 0
        for start, clients in self.phases:
            if start > now:
                break
            count = clients
        return count


Trace = OpenTrace | ClosedTrace


def poisson(
    name: str, rate: float, duration_s: float, lengths: Lengths, rng: np.random.Generator
) -> OpenTrace:
    """Independent arrivals at ``rate`` requests/s."""
    return gamma(name, rate, 1.0, duration_s, lengths, rng)


def gamma(
    name: str,
    rate: float,
    shape: float,
    duration_s: float,
    lengths: Lengths,
    rng: np.random.Generator,
) -> OpenTrace:
    """Gamma gaps: ``shape`` below 1 comes in bursts, 1 is Poisson, above 1 is more even."""
    count = max(int(rate * duration_s), 1)
    times = np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), count))
    return _open(name, times[times <= duration_s].tolist(), lengths, rng)


def steps(
    name: str,
    rates: Sequence[tuple[float, float]],
    duration_s: float,
    lengths: Lengths,
    rng: np.random.Generator,
) -> OpenTrace:
    """Poisson arrivals whose rate changes at given times: (start seconds, requests/s) pairs."""
    times: list[float] = []
    ends = [start for start, _ in rates[1:]] + [duration_s]
    for (start, rate), end in zip(rates, ends, strict=True):
        count = rng.poisson(rate * (end - start))
        times.extend(sorted(rng.uniform(start, end, count).tolist()))
    return _open(name, times, lengths, rng)


def swing(
    name: str, idle: int, busy: int, period_s: float, cycles: int, idle_share: float = 0.5
) -> ClosedTrace:
    """Clients that alternate between ``idle`` and ``busy``, ``cycles`` times."""
    phases: list[tuple[float, int]] = []
    for cycle in range(cycles):
        phases += [(cycle * period_s, idle), ((cycle + idle_share) * period_s, busy)]
    return ClosedTrace(name, tuple(phases), cycles * period_s)


def load_azure(path: Path, name: str = "azure", limit: int | None = None) -> OpenTrace:
    """The CSV of the Azure LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens."""
    requests: list[Request] = []
    start: datetime | None = None
    with path.open(newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines), start=2):
            try:
                # Seven fractional digits; datetime takes six.
                at = datetime.fromisoformat(row["TIMESTAMP"][:26])
                prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {number}: {error}; expected TIMESTAMP, ContextTokens and "
                    "GeneratedTokens"
                ) from error
            start = start or at
            requests.append(Request((at - start).total_seconds(), max(prompt, 1), max(output, 1)))
            if limit is not None and len(requests) >= limit:
                break
    return _sorted(name, path, requests)


def load_mooncake(path: Path, name: str = "mooncake", limit: int | None = None) -> OpenTrace:
    """The JSON lines of the Mooncake traces: timestamp (ms), input_length, output_length."""
    requests: list[Request] = []
    with path.open() as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                request = Request(
                    float(row["timestamp"]) / 1000.0,
                    max(int(row["input_length"]), 1),
                    max(int(row["output_length"]), 1),
                )
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, line {number}: {error}; expected timestamp, input_length and "
                    "output_length"
                ) from error
            requests.append(request)
            if limit is not None and len(requests) >= limit:
                break
    return _sorted(name, path, requests)


def scaled(trace: OpenTrace, slowdown: float, prompt_share: float = 1.0) -> OpenTrace:
    """The same trace ``slowdown`` times slower, prompts cut to a share (a cached prefix)."""
    return replace(
        trace,
        requests=tuple(
            Request(
                r.arrival_s * slowdown, max(int(r.prompt_tokens * prompt_share), 1), r.output_tokens
            )
            for r in trace.requests
        ),
    )


def _open(
    name: str, times: Sequence[float], lengths: Lengths, rng: np.random.Generator
) -> OpenTrace:
    prompts, outputs = lengths.draw(rng, len(times))
    if not times:
        raise ValueError(f"trace {name} is empty; its rate and duration give no request")
    return OpenTrace(name, tuple(map(Request, times, prompts, outputs)))


def _sorted(name: str, path: Path, requests: list[Request]) -> OpenTrace:
    if not requests:
        raise ValueError(f"{path} holds no request")
    requests.sort(key=lambda r: r.arrival_s)
    first = requests[0].arrival_s
    shifted = (replace(r, arrival_s=r.arrival_s - first) for r in requests)
    return OpenTrace(name, tuple(shifted))
