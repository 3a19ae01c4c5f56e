"""The traces of the comparison, scaled to the speed of a device. Reads the trace files it is
given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from jetspec_simulator.arrivals import (
    ClosedTrace,
    Lengths,
    OpenTrace,
    Trace,
    gamma,
    load_azure,
    load_mooncake,
    poisson,
    scaled,
    steps,
    swing,
)
from jetspec_simulator.curves import Device
from jetspec_simulator.run import LatencyBounds

INTERACTIVE = LatencyBounds(tpot_s=0.030, ttft_s=0.5)
"""What MLPerf Inference 5.1 asks of an 8B model for interactive users (Llama 3.1 8B)."""

IDLE_TO_SATURATION = "night and peak 1–32"
BUSY_CLIENTS = 16
CACHED_PROMPTS = 0.1
"""Share of a Mooncake prompt that is computed; the rest is its cached prefix."""


def capacity(device: Device, batch: int = BUSY_CLIENTS) -> float:
    """Tokens per second at ``batch`` with the best tier."""
    tier = device.best(batch)
    return batch * device.tau(tier) / device.surface.round_s(batch, tier)


def scenarios(
    device: Device,
    seed: int,
    azure: Path | None = None,
    mooncake: Path | None = None,
    shorten: float = 1.0,
) -> Mapping[str, Trace]:
    """Traces by name; ``shorten`` below 1 cuts their duration. ``seed`` draws the generated ones."""
    lengths, rng = Lengths(), np.random.default_rng(seed)
    full = capacity(device) / lengths.output_tokens  # requests/s
    long = 600.0 * shorten
    quarter = long / 4
    traces: list[Trace] = [
        ClosedTrace("1 client", ((0.0, 1),), 300.0 * shorten),
        ClosedTrace("8 clients", ((0.0, 8),), 300.0 * shorten),
        swing("swing 1–16", 1, BUSY_CLIENTS, 120.0 * shorten, 5),
        swing("fast swing 1–16", 1, BUSY_CLIENTS, 20.0, max(round(15 * shorten), 1)),
        swing(IDLE_TO_SATURATION, 1, 32, 180.0 * shorten, 4, idle_share=2 / 3),
        poisson("Poisson, half load", 0.5 * full, long, lengths, rng),
        gamma("bursts, 0.4 load", 0.4 * full, 0.25, long, lengths, rng),
        steps(
            "steps, 0.05–0.9 load",
            [(i * quarter, load * full) for i, load in enumerate((0.05, 0.9, 0.1, 0.6))],
            long,
            lengths,
            rng,
        ),
    ]
    if azure is not None:
        traces.append(_first(load_azure(azure, "Azure 2023 code"), shorten))
    if mooncake is not None:
        trace = _first(load_mooncake(mooncake, "Mooncake synthetic"), shorten)
        rate = len(trace.requests) / trace.duration_s
        mean = sum(r.output_tokens for r in trace.requests) / len(trace.requests)
        slowdown = rate * mean / (0.4 * capacity(device))
        traces.append(scaled(trace, max(slowdown, 1.0), CACHED_PROMPTS))
    return {trace.name: trace for trace in traces}


def _first(trace: OpenTrace, share: float) -> OpenTrace:
    count = max(round(len(trace.requests) * share), 1)
    return replace(trace, requests=trace.requests[:count])
