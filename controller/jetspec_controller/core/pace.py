"""How often a server's budget may rise. No I/O.

A cut soon after a rise is a reversal: it doubles the dwell, so that a load at the border between
two budgets settles on the lower one. Waits are spread by a share that depends on the target's
name alone, so that servers behind one balancer do not move together.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.state import TargetState

REVERSAL_DWELLS = 3.0
"""A cut within this many dwells of a rise is a reversal."""


def spread(config: PolicyConfig, target: str) -> float:
    """The factor 1 … 1 + jitter of one target."""
    return 1.0 + config.jitter * zlib.crc32(target.encode()) / 2**32


def rise_at(config: PolicyConfig, state: TargetState, target: str) -> float:
    """Earliest time of a rise: one dwell after the last cut."""
    if state.cut_at is None:
        return float("-inf")
    return state.cut_at + _dwell(config, state) * spread(config, target)


def moved(config: PolicyConfig, state: TargetState, old: int, new: int, now: float) -> TargetState:
    """The state after the budget went from ``old`` to ``new``; probes and their ends do not count."""
    if new > old:
        return replace(state, rose_at=now)
    if new == old:
        return state
    soon = state.rose_at is not None and (
        now - state.rose_at <= REVERSAL_DWELLS * _dwell(config, state)
    )
    reversals = min(state.reversals + 1, 16) if soon else max(state.reversals - 1, 0)
    return replace(state, cut_at=now, reversals=reversals)


def _dwell(config: PolicyConfig, state: TargetState) -> float:
    return min(config.dwell_s * 2.0**state.reversals, config.max_dwell_s)
