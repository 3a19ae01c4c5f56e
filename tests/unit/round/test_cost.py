"""Round accounting: buckets of rows and the moving average of their cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.metrics import Round
from jetspec_sglang.round.cost import COST_WEIGHT, RoundCost, rows_bucket


@given(st.integers(1, 100_000))
def test_a_bucket_is_the_next_power_of_two(rows):
    bucket = rows_bucket(rows)
    assert bucket & (bucket - 1) == 0
    assert rows <= bucket < 2 * rows


def test_seeds_do_not_replace_what_was_served():
    cost = RoundCost()
    cost.update(16, 2.0)
    cost.seed(16, 1.0)
    cost.seed(32, 3.0)
    assert cost.seconds == {16: 2.0, 32: 3.0}


def test_updates_move_the_average_by_the_weight():
    cost = RoundCost()
    cost.seed(12, 1.0)
    bucket, average = cost.update(13, 2.0)
    assert bucket == 16
    assert average == pytest.approx(1.0 + COST_WEIGHT)


def test_total_is_the_sum_of_phases():
    assert Round(16, 1, 16, 2, {"draft": 1.0, "verify": 2.5}).total_seconds == 3.5
