"""The next seconds: the expected batch, and the limits that follow from it. No I/O."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jetspec_controller.core import reserve, table
from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.desired import Desired
from jetspec_controller.core.enums import Clamp, Reason
from jetspec_controller.core.inputs import number
from jetspec_controller.core.load import ServerLoad, peak_batch
from jetspec_controller.core.model import SpeedModel
from jetspec_controller.core.smoothing import Array
from jetspec_controller.core.state import TargetState
from jetspec_controller.core.types import Table, TargetObservation


def ahead(
    config: PolicyConfig, load: ServerLoad, speed: SpeedModel | None, in_force: Table
) -> float:
    """The largest batch within ``look_ahead_s`` that needs to run, under the table in force. Two
    effects are ignored: a full KV cache may keep the batch small, and a rising load is below
    Little's law.
    """

    def token_s(batch: Array) -> Array:
        assert speed is not None
        here = table.lookup(in_force, float(batch[0]))
        column = int(np.searchsorted(speed.budgets, here))
        return speed.token_s(batch)[column : column + 1]

    load = replace(load, limit=load.slots, scale=max(load.scale, 1.0))
    if speed is None:
        load = replace(load, output_tokens=None)
    return float(peak_batch(load, config.look_ahead_s, token_s, 1)[0])


def _kv_full(config: PolicyConfig, observation: TargetObservation) -> bool:
    return (number(observation.token_usage) or 0.0) >= config.kv_high_water


def _block(state: TargetState) -> int:
    return (state.known.block_size if state.known is not None else None) or 1


def settles(config: PolicyConfig, state: TargetState) -> float:
    """When a table may rise again."""
    changed = max(state.rose_at or float("-inf"), state.cut_at or float("-inf"))
    return changed + config.dwell_s


def cold(
    config: PolicyConfig, allowed: tuple[int, ...], load: ServerLoad, in_force: Table, held: Desired
) -> Desired | None:
    """While nothing is measured: remove the budgets for which the expected batch has no room."""
    coming = ahead(config, load, None, in_force)
    most = reserve.fitting(config, allowed, load, coming, _block(held.state))
    if most >= max(budget for _, budget in in_force):
        return None
    explanation = replace(
        held.explanation,
        batch_expected=coming,
        kv_ceiling=most,
        clamps=(*held.explanation.clamps, Clamp.KV_PRESSURE),
    )
    cut = tuple((batch, min(budget, most)) for batch, budget in in_force)
    held = replace(held, explanation=explanation)
    return held.tabled(table.compress(cut), load.batch, Reason.KV_PRESSURE)


def limits(
    config: PolicyConfig,
    observation: TargetObservation,
    speed: SpeedModel,
    load: ServerLoad,
    coming: float,
    in_force: Table,
    state: TargetState,
    now: float,
) -> table.Limits:
    """The limits of a table at this tick, for the expected batch ``coming``."""
    widest = max(budget for _, budget in in_force)
    return table.Limits(
        reserve.ceiling(config, speed, load, coming, _block(state), widest),
        _kv_full(config, observation),
        settles(config, state) > now,
    )
