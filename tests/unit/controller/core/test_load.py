"""The batch to expect: Little's law at rest, the present batch over a short time."""

from __future__ import annotations

import numpy as np
import pytest
from jetspec_controller.core.load import ServerLoad, expected_batch, peak_batch

INF = float("inf")


def slow(batch):
    """Seconds per token that grow with the batch."""
    return 0.002 + 0.0005 * batch


def expect(load, horizon, seconds_per_token=slow) -> float:
    return float(expected_batch(load, horizon, seconds_per_token, 3)[1])


def test_long_horizon_ends_at_the_fixed_point():
    rate, tokens = 5.0, 100.0
    rest = rate * tokens * 0.002 / (1 - rate * tokens * 0.0005)
    for start in (0.0, 20.0):
        batch = start
        for _ in range(20):
            batch = expect(ServerLoad(batch, 0.0, INF, rate, tokens), 5.0)
        assert batch == pytest.approx(rest, rel=0.01)


def test_short_horizon_stays_at_the_present_batch():
    assert expect(ServerLoad(7.0, 0.0, INF, 5.0, 100.0), 1e-3) == pytest.approx(7.0, rel=0.01)


def test_a_slower_budget_meets_a_larger_batch():
    load = ServerLoad(4.0, 0.0, INF, 5.0, 100.0)
    fast = expect(load, 10.0)
    slower = expect(load, 10.0, lambda batch: 2 * slow(batch))
    assert slower > fast


def test_waiting_requests_are_expected_to_run_up_to_the_limit():
    assert expect(ServerLoad(4.0, 10.0, INF, None, None), 2.0) == 14.0
    assert expect(ServerLoad(4.0, 10.0, 8.0, None, None), 2.0) == 8.0
    assert expect(ServerLoad(4.0, 10.0, 8.0, 1e3, 100.0), 60.0) <= 8.0


def test_more_arrivals_are_a_larger_batch():
    expected = [
        expect(ServerLoad(4.0, 0.0, INF, rate, 100.0), 2.0) for rate in (0.0, 1.0, 5.0, 50.0)
    ]
    assert expected == sorted(expected)


def test_without_a_rate_the_present_batch_is_expected():
    assert expect(ServerLoad(4.0, 0.0, INF, None, None), 2.0) == 4.0


def test_before_anything_has_finished_requests_only_come():
    fresh = ServerLoad(0.0, 2.0, INF, 3.0, None)
    assert expect(fresh, 10.0) == 2.0 + 0.5 * 30.0
    assert float(peak_batch(fresh, 10.0, slow, 1)[0]) == 2.0 + 30.0
    assert float(peak_batch(ServerLoad(0.0, 2.0, 8.0, 3.0, None), 10.0, slow, 1)[0]) == 8.0


def test_the_peak_of_a_falling_batch_is_now_and_of_a_rising_one_at_the_end():
    falling, rising = ServerLoad(30.0, 0.0, INF, 0.0, 100.0), ServerLoad(1.0, 0.0, INF, 9.0, 100.0)
    assert float(peak_batch(falling, 10.0, slow, 1)[0]) == 30.0
    assert float(peak_batch(rising, 10.0, slow, 1)[0]) > expect(rising, 10.0)


def test_an_idle_server_expects_one_request():
    assert expect(ServerLoad(0.0, 0.0, INF, 0.0, 100.0), 2.0) == 1.0


def test_overload_is_finite():
    load = ServerLoad(10.0, 50.0, INF, 1e4, 1e3)
    assert np.isfinite(expect(load, 2.0))
