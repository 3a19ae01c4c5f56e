"""Every policy key changes some decision, in the mode it belongs to.

Keys of one number (`publish_table: false`) are listed here and marked in `docs/tune.md`; all others
act in the mode that ships.
"""

from __future__ import annotations

from typing import Any

import pytest
from jetspec_controller.core import Decision, PolicyConfig

from tests.support import courses
from tests.support.courses import Run

KEYS: dict[str, tuple[Run, dict[str, Any], dict[str, Any]]] = {
    "governor": (courses.steady, {}, {"governor": "off"}),
    "interval_s": (courses.probing, {}, {"interval_s": 8.0}),
    "min_budget": (courses.steady, {}, {"min_budget": 64}),
    "max_budget": (courses.steady, {}, {"max_budget": 16}),
    "pinned_budget": (
        courses.steady,
        {"governor": "pinned", "pinned_budget": 16},
        {"governor": "pinned", "pinned_budget": 64},
    ),
    "table": (
        courses.steady,
        {"governor": "table", "table": {1: 64}},
        {"governor": "table", "table": {1: 64, 4: 16}},
    ),
    "publish_table": (courses.steady, {}, {"publish_table": False}),
    "fallback_budget": (courses.from_uniform_blind, {}, {"fallback_budget": 64}),
    "tpot_objective_s": (courses.measured, {}, {"tpot_objective_s": 0.011}),
    "ttft_objective_s": (courses.measured, {}, {"ttft_objective_s": 0.17}),
    "kv_high_water": (courses.full, {}, {"kv_high_water": 1.0}),
    "look_ahead_s": (courses.filling, {}, {"look_ahead_s": 0.1}),
    "max_age_s": (courses.late, {}, {"max_age_s": 60.0}),
    "hold_s": (courses.from_uniform_blind, {}, {"hold_s": 4.0}),
    "tolerance_up": (courses.better_drafts, {}, {"tolerance_up": 0.6}),
    "tolerance_down": (courses.steady, {}, {"tolerance_down": 0.6}),
    "rise_after_ticks": (courses.climbing, {"publish_table": False}, {"rise_after_ticks": 5}),
    "dwell_s": (courses.changing_cost, {}, {"dwell_s": 12.0}),
    "step_up": (courses.relieved, {}, {"step_up": 1}),
    "step_down": (courses.steady, {}, {"step_down": 1}),
    "jitter": (courses.losing_probes, {}, {"jitter": 1.0}),
    "load_half_life_s": (courses.bursty, {}, {"load_half_life_s": 0.5}),
    "accept_half_life_s": (courses.changing_tau, {}, {"accept_half_life_s": 6000.0}),
    "cost_half_life_s": (courses.changing_cost, {}, {"cost_half_life_s": 3.0}),
    "min_request_rounds": (courses.young, {}, {"min_request_rounds": 2000.0}),
    "evidence_max_age_s": (courses.better_drafts, {}, {"evidence_max_age_s": 10.0}),
    "probe_gain": (courses.probing, {}, {"probe_gain": 0.9}),
    "probe_interval_s": (courses.losing_probes, {}, {"probe_interval_s": 40.0}),
}
"""Key: what happens, the policy, and the change that must make a difference."""

ONE_NUMBER = {"rise_after_ticks"}


def outcome(decision: Decision) -> tuple[object, ...]:
    return decision.action, decision.budget, decision.table, decision.reason


def test_every_key_is_here() -> None:
    assert set(KEYS) == set(PolicyConfig.model_fields)
    assert {
        k for k, (_, base, _) in KEYS.items() if base.get("publish_table") is False
    } == ONE_NUMBER


@pytest.mark.parametrize("key", KEYS)
def test_every_key_changes_a_decision(key: str) -> None:
    run, base, change = KEYS[key]
    before = run(PolicyConfig(**base))
    after = run(PolicyConfig(**{**base, **change}))
    assert list(map(outcome, before)) != list(map(outcome, after))
