"""Monotone and convex smoothing of measured curves by pool-adjacent-violators. No I/O.

All functions take one-dimensional float64 arrays of equal length in ascending x.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def isotonic(values: Array, weights: Array) -> Array:
    """The non-decreasing sequence nearest to ``values`` in weighted least squares."""
    means: list[float] = []
    masses: list[float] = []
    counts: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        means.append(value)
        masses.append(weight)
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            mass = masses[-2] + masses[-1]
            means[-2] = (means[-2] * masses[-2] + means[-1] * masses[-1]) / mass
            masses[-2] = mass
            counts[-2] += counts[-1]
            means.pop()
            masses.pop()
            counts.pop()
    return np.repeat(np.array(means, dtype=np.float64), counts)


def concave(x: Array, y: Array, weights: Array) -> Array:
    """``y`` made non-decreasing and concave in x: its slopes are pooled, y[0] is kept.

    ``weights[k]`` is the evidence behind the step from k−1 to k; weights[0] is unused.
    """
    step = np.diff(x)
    slopes = np.diff(y) / step
    pooled = -isotonic(-slopes, weights[1:] * step)
    smooth: Array = y[0] + np.concatenate(([0.0], np.cumsum(np.maximum(pooled, 0.0) * step)))
    return smooth


def loglog_convex(rows: Array, seconds: Array, weights: Array) -> tuple[Array, Array]:
    """(log rows, log seconds) non-decreasing with non-decreasing slope.

    A round costs a fixed time while it is bound by memory, then grows with its rows; both
    ``max(a, b·rows)`` and ``a + b·rows`` have this shape. It also makes the best budget fall, and
    never rise, with the batch. The weighted mean of log seconds is kept.
    """
    u, v = np.log(rows), isotonic(np.log(seconds), weights)
    if len(u) < 3:
        return u, v
    step = np.diff(u)
    slopes = np.diff(v) / step
    pooled = isotonic(slopes, step * np.minimum(weights[1:], weights[:-1]))
    shape = np.concatenate(([0.0], np.cumsum(pooled * step)))
    return u, shape + np.average(v - shape, weights=weights)
