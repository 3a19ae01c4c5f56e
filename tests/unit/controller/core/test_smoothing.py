"""Smoothing keeps order and shape, and leaves a curve alone that already has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetspec_controller.core.smoothing import concave, isotonic, loglog_convex

values = st.lists(st.floats(-10, 10), min_size=1, max_size=12)


@given(values, st.randoms(use_true_random=False))
def test_isotonic_is_ordered_and_keeps_the_weighted_mean(ys, random):
    y, w = np.array(ys), np.array([random.uniform(0.1, 5) for _ in ys])
    smooth = isotonic(y, w)
    assert np.all(np.diff(smooth) >= -1e-12)
    assert np.average(smooth, weights=w) == pytest.approx(np.average(y, weights=w), abs=1e-9)


@given(values, values)
def test_isotonic_is_the_nearest_ordered_sequence(ys, other):
    y = np.array(ys)
    rival = np.sort(np.resize(np.array(other), len(y)))
    w = np.ones(len(y))
    assert ((isotonic(y, w) - y) ** 2).sum() <= ((rival - y) ** 2).sum() + 1e-9


@given(values)
def test_isotonic_keeps_an_ordered_sequence(ys):
    y = np.sort(np.array(ys))
    assert isotonic(y, np.ones(len(y))) == pytest.approx(y)


@given(st.lists(st.floats(0, 5), min_size=2, max_size=10))
def test_concave_rises_with_falling_slopes(ys):
    x = np.cumsum(np.arange(1.0, len(ys) + 1))
    smooth = concave(x, np.array(ys), np.ones(len(ys)))
    slopes = np.diff(smooth) / np.diff(x)
    assert smooth[0] == ys[0]
    assert np.all(slopes >= -1e-12)
    assert np.all(np.diff(slopes) <= 1e-9)


def test_concave_keeps_a_concave_curve():
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    y = 1.0 + np.log2(x)
    assert concave(x, y, np.ones(5)) == pytest.approx(y)


@pytest.mark.parametrize(
    "cost",
    [lambda r: np.maximum(0.01, 5e-5 * r), lambda r: 0.01 + 5e-5 * r],
    ids=["roofline", "affine"],
)
def test_loglog_convex_keeps_what_devices_do(cost):
    rows = 2.0 ** np.arange(14)
    u, v = loglog_convex(rows, cost(rows), np.ones(14))
    assert u == pytest.approx(np.log(rows))
    assert v == pytest.approx(np.log(cost(rows)))


@given(st.lists(st.floats(1e-3, 1.0), min_size=3, max_size=12))
def test_loglog_convex_grows_ever_steeper(seconds):
    u, v = loglog_convex(2.0 ** np.arange(len(seconds)), np.array(seconds), np.ones(len(seconds)))
    slopes = np.diff(v) / np.diff(u)
    assert np.all(slopes >= -1e-9)
    assert np.all(np.diff(slopes) >= -1e-9)
