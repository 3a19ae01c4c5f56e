"""How often a server's budget may rise. No I/O.

Waits vary by a share that depends only on the target's name, so that servers behind one balancer do
not change at the same time.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.state import TargetState


def spread(config: PolicyConfig, target: str) -> float:
    """The factor 1 … 1 + jitter of one target."""
    return 1.0 + config.jitter * zlib.crc32(target.encode()) / 2**32


def rise_at(config: PolicyConfig, state: TargetState, target: str) -> float:
    """Earliest time of a rise: one dwell after the last cut."""
    if state.cut_at is None:
        return float("-inf")
    return state.cut_at + config.dwell_s * spread(config, target)


def moved(state: TargetState, old: int, new: int, now: float) -> TargetState:
    """The state after the budget went from ``old`` to ``new``; probes and their ends do not count."""
    if new > old:
        return replace(state, rose_at=now)
    return state if new == old else replace(state, cut_at=now)
