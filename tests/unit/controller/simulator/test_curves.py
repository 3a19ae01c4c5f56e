"""The truth that simulated servers run on."""

from __future__ import annotations

import numpy as np
import pytest
from jetspec_simulator.curves import (
    DEVICES,
    TABLE_11,
    TABLE_11_RATES,
    TABLE_11_TAU,
    RooflineSurface,
    TauCurve,
)


def test_table_11_gives_back_its_tokens_per_second():
    for batch, row in TABLE_11_RATES.items():
        for budget, rate in row.items():
            seconds = TABLE_11.round_s(batch, budget)
            assert batch * TABLE_11_TAU(budget) / seconds == pytest.approx(rate)


def test_table_11_best_budget_falls_with_the_batch():
    device = DEVICES["table11"]
    assert [device.best(n) for n in (1, 2, 4, 8, 16)] == [128, 128, 128, 64, 32]


def test_between_the_points_it_is_linear_and_beyond_it_goes_on():
    low, high = TABLE_11.round_s(8, 64), TABLE_11.round_s(16, 64)
    assert TABLE_11.round_s(12, 64) == pytest.approx((low + high) / 2)
    assert TABLE_11.round_s(24, 64) == pytest.approx(high + (high - low))


def test_tau_is_linear_in_octaves_and_goes_on():
    tau = TauCurve((1, 16, 32), (1.0, 5.0, 6.0))
    assert tau.many(np.array([1.0, 4.0, 32.0, 128.0])) == pytest.approx([1.0, 3.0, 6.0, 8.0])


def test_a_tau_curve_starts_at_one():
    with pytest.raises(ValueError, match="starts at budget 1"):
        TauCurve((2, 16), (1.5, 5.0))


def test_roofline_is_flat_then_proportional():
    surface = RooflineSurface(read_s=0.01, row_s=1e-5, request_s=0.0, draft_s=0.002)
    assert surface.round_s(1, 16) == pytest.approx(0.012, rel=0.01)
    assert surface.round_s(64, 256) == pytest.approx(64 * 256 * 1e-5 + 0.002, rel=0.01)
    assert surface.round_s(1, 1) == pytest.approx(0.01, rel=0.01)
