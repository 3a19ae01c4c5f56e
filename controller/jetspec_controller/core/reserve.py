"""The largest tree for which the KV cache has room at the expected batch. No I/O.

For every running request the scheduler keeps twice the widest round of the table free (a round is
as wide as its budget, and at least as wide as the head's block), whichever entry of a table is
used. If this does not fit, the scheduler retracts requests, which start again with a prefill. So
one large entry for few requests takes room from many requests. It must be removed before they
arrive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.load import ServerLoad
from jetspec_controller.core.model import SpeedModel
from jetspec_controller.core.smoothing import Array

ROUNDS_KEPT = 2.0
"""Rounds for which the scheduler keeps slots free."""

ADMITTED = 0.95
"""Share of the cache up to which requests are assumed to be admitted."""

MARGIN = 1.25
"""A table becomes wider only if it fits a batch this much larger, so that it stays."""


def ceiling(
    config: PolicyConfig,
    speed: SpeedModel,
    load: ServerLoad,
    ahead: float,
    block: int,
    widest: int,
) -> int | None:
    """The largest budget that a table may hold, given ``widest``, that of the table in force. None:
    no limit.

    Every plan that fits at the batch ``ahead`` may be used. If none fits, a narrow plan lets more
    requests run, and a wide plan runs them faster. Then the plan with the most tokens per second is
    the limit.
    """
    if load.kv_tokens is None or not load.request_tokens:
        return None
    budgets = speed.budgets.astype(int).tolist()
    now, later = (_widest(config, speed, load, n, block) for n in (ahead, MARGIN * ahead))
    limit = max(min(now, widest), later)
    return None if limit >= budgets[-1] else limit


def fitting(
    config: PolicyConfig, allowed: Sequence[int], load: ServerLoad, ahead: float, block: int
) -> int:
    """The largest budget that fits at the batch ``ahead``, without any curve. If none fits, the
    smallest one. If the size of the cache is unknown, the largest one.
    """
    if load.kv_tokens is None or not load.request_tokens:
        return allowed[-1]
    room = _room(config, load.kv_tokens)
    held = _held(np.array(allowed, dtype=np.float64), load.request_tokens, block)
    return max(
        (b for b, h in zip(allowed, held, strict=True) if ahead * h <= room),
        default=allowed[0],
    )


def _widest(
    config: PolicyConfig, speed: SpeedModel, load: ServerLoad, ahead: float, block: int
) -> int:
    assert load.kv_tokens is not None
    assert load.request_tokens is not None
    wanting = min(ahead, ADMITTED * load.kv_tokens / load.request_tokens)
    most = _room(config, load.kv_tokens) / _held(speed.budgets, load.request_tokens, block)
    batch = np.maximum(np.minimum(wanting, most), 1.0)[:, None]
    rates = np.tril(batch / speed.token_s(batch)).max(1)
    fitting = np.flatnonzero(most >= wanting)
    return int(speed.budgets[max(int(np.argmax(rates)), *fitting.tolist(), 0)])


def _room(config: PolicyConfig, kv_tokens: float) -> float:
    """Tokens of the cache for requests and their rounds."""
    return min(config.kv_high_water + 1.0 - ADMITTED, 1.0) * kv_tokens


def _held(budgets: Array, request_tokens: float, block: int) -> Array:
    """Slots of the cache that one request takes under a table as wide as each budget."""
    held: Array = request_tokens + ROUNDS_KEPT * np.maximum(budgets, block)
    return held
