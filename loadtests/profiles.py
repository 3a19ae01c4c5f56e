"""Request rates over time: constant, ramp, steps, diurnal.

Contract: pure. A profile gives the expected number of arrivals up to a time and its inverse, so
that any arrival process of unit rate can be laid over any profile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtests.config import LoadConfig

_GRID_S = 0.01


@dataclass(frozen=True, slots=True)
class Profile:
    """Expected arrivals up to each time of a grid."""

    times: np.ndarray
    expected: np.ndarray

    @classmethod
    def of(cls, config: LoadConfig) -> Profile:
        """The profile of an open loop that is not a trace."""
        cells = max(1, math.ceil(config.seconds / _GRID_S))
        edges = np.linspace(0.0, config.seconds, cells + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        per_cell = rates(config, middles) * np.diff(edges)
        return cls(edges, np.concatenate([[0.0], np.cumsum(per_cell)]))

    @property
    def total(self) -> float:
        """Expected arrivals of the whole run."""
        return float(self.expected[-1])

    def when(self, expected: Sequence[float]) -> list[float]:
        """The times by which so many arrivals are expected."""
        return [float(one) for one in np.interp(expected, self.expected, self.times)]


def rates(config: LoadConfig, at: np.ndarray) -> np.ndarray:
    """Requests per second at the given times."""
    if config.arrivals == "ramp":
        return config.rate + (config.end_rate - config.rate) * at / config.seconds
    if config.arrivals == "step":
        length = config.seconds / len(config.steps)
        places = np.minimum((at / length).astype(int), len(config.steps) - 1)
        stepped: np.ndarray = np.asarray(config.steps)[places]
        return stepped
    if config.arrivals == "diurnal":
        wave = np.sin(2 * np.pi * at / config.period)
        return config.rate * (1 + config.amplitude * wave)
    return np.full_like(at, config.rate)
