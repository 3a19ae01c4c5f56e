"""Probes: when to try a nearby budget with an uncertain prediction, for how long, and the result.

No I/O. A probe must have an expected gain. This is the mean share of seconds per token that it
saves (zero where it saves nothing), over the uncertainty of the curves, minus the expected cost of
the trial. Measured budgets have little uncertainty, so probing ends by itself. After each lost
probe, the next one waits longer. Each size of load has its own wait, because a trial with one
request says little about thirty requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.pace import spread
from jetspec_controller.core.state import ProbeWait, TargetState
from jetspec_controller.core.types import BudgetCounters, Candidate, Table

REACH = 2
"""Tiers up or down that a probe may go."""

PAYBACK_TICKS = 10.0
"""Ticks in which a probe has to pay."""

LONGEST_TICKS = 5
"""Ticks after which a probe ends without a result."""

BATCH_CHANGE = 1.5
"""A probe is valid for batches within this factor of the batch at which it was proposed."""

SIZE = 4.0
"""Batches within this factor are of one size."""


def expected_gain(candidate: Candidate, here: Candidate) -> float:
    """E[max(0, log(here / candidate))] of seconds per token, normally distributed with the
    candidate's uncertainty."""
    mean = math.log(here.token_s / candidate.token_s)
    if candidate.doubt <= 0:
        return max(mean, 0.0)
    z = mean / candidate.doubt
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    return mean * 0.5 * (1.0 + math.erf(z / math.sqrt(2.0))) + candidate.doubt * density


def worth(candidate: Candidate, here: Candidate) -> float:
    """Expected gain per tick, minus the expected loss of the one tick of the trial, spread over the
    ticks in which the probe must pay off.
    """
    gain = expected_gain(candidate, here)
    loss = gain - math.log(here.token_s / candidate.token_s)
    return gain - loss / PAYBACK_TICKS


def propose(
    config: PolicyConfig,
    options: Sequence[Candidate],
    current: int,
    rises: bool,
    state: TargetState,
    now: float,
) -> int | None:
    """The budget to try, or None. Beyond the measured budgets, only the first one may be tried."""
    here = next(i for i, c in enumerate(options) if c.budget == current)
    wait = _wait(state, options[here].batch)
    if state.probe_budget is not None or (wait is not None and now < wait.until):
        return None
    unmeasured = next((i for i, c in enumerate(options) if c.extrapolated), len(options))
    top = min(here + REACH, max(unmeasured, here)) if rises else here
    reach = [
        c for c in options[max(here - REACH, 0) : top + 1] if c.feasible and c.budget != current
    ]
    if not reach:
        return None
    best = max(reach, key=lambda c: worth(c, options[here]))
    return best.budget if worth(best, options[here]) > config.probe_gain else None


def begin(
    config: PolicyConfig,
    budget: int,
    current: int,
    in_force: Table,
    batch: float,
    state: TargetState,
    now: float,
) -> TargetState:
    """The state with a probe under way."""
    return replace(
        state,
        probe_budget=budget,
        probe_from=current,
        probe_table=in_force,
        probe_batch=batch,
        probe_until=now + LONGEST_TICKS * config.interval_s,
    )


def near(state: TargetState, batch: float) -> bool:
    """Whether a batch is like the one that the probe is for."""
    return 1 / BATCH_CHANGE <= batch / state.probe_batch <= BATCH_CHANGE


def left(state: TargetState, batch: float) -> bool:
    """Whether the load has a very different size, so that no result can be expected soon."""
    return not 1 / SIZE < batch / state.probe_batch < SIZE


def measured(state: TargetState, fresh: Sequence[BudgetCounters], tau_measured: float) -> bool:
    """Whether the probed budget has run at its batch, and its τ is known."""
    return (state.probe_budget or 0) <= tau_measured and any(
        c.budget == state.probe_budget and c.rounds > 0 and near(state, c.request_rounds / c.rounds)
        for c in fresh
    )


def expired(state: TargetState, now: float) -> bool:
    """Whether the probe has waited too long for a measurement."""
    return now >= state.probe_until


def end(
    config: PolicyConfig, target: str, won: bool | None, state: TargetState, now: float
) -> TargetState:
    """The state after the result (None: there was none). After a lost probe, the next one waits
    twice as long.
    """
    before = _wait(state, state.probe_batch)
    losses = before.losses if before is not None else 0
    if won is not None:
        losses = 0 if won else min(losses + 1, 8)
    seconds = config.probe_interval_s * 2.0 ** max(losses - 1, 0) * spread(config, target)
    wait = ProbeWait(_size(state.probe_batch), now + seconds, losses)
    others = (w for w in state.probe_waits if w.size != wait.size)
    return replace(state, probe_budget=None, probe_waits=(*others, wait))


def _wait(state: TargetState, batch: float) -> ProbeWait | None:
    return next((w for w in state.probe_waits if w.size == _size(batch)), None)


def _size(batch: float) -> int:
    return round(math.log(batch, SIZE))
