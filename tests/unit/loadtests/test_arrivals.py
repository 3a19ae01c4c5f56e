"""Schedules: rate, burstiness, determinism, split over workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtests.arrivals import schedule, split
from loadtests.config import ConfigError
from tests.unit.loadtests.build import config


def times(**values: object) -> np.ndarray:
    return np.array([one.at for one in schedule(config(**values)).arrivals])


def test_poisson_has_its_rate_and_its_spread() -> None:
    at = times(rate=20, seconds=500)
    gaps = np.diff(at)
    assert len(at) == pytest.approx(10000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.05)
    assert at.min() >= 0
    assert at.max() < 500


@pytest.mark.parametrize("shape", [0.25, 4.0])
def test_gamma_gaps_vary_as_the_shape_says(shape: float) -> None:
    gaps = np.diff(times(arrivals="gamma", burstiness=shape, rate=20, seconds=500))
    assert gaps.mean() == pytest.approx(0.05, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(shape**-0.5, rel=0.08)


def test_constant_gaps() -> None:
    assert times(arrivals="constant", rate=4, seconds=2) == pytest.approx(np.arange(8) / 4)


def test_ramp_steps_and_wave_follow_their_rates() -> None:
    ramp = times(arrivals="ramp", rate=2, end_rate=18, seconds=200)
    assert len(ramp) == pytest.approx(2000, rel=0.06)
    assert (ramp < 100).sum() == pytest.approx(600, rel=0.12)
    steps = times(arrivals="step", steps="5,20,5", seconds=300)
    counts, _ = np.histogram(steps, bins=[0, 100, 200, 300])
    assert counts == pytest.approx([500, 2000, 500], rel=0.12)
    wave = times(arrivals="diurnal", rate=10, amplitude=0.9, period=100, seconds=300)
    phase = (wave % 100) / 100
    high, low = ((phase > 0.1) & (phase < 0.4)).sum(), ((phase > 0.6) & (phase < 0.9)).sum()
    assert len(wave) == pytest.approx(3000, rel=0.06)
    assert high / low == pytest.approx(7.0, rel=0.3)


def test_a_seed_gives_one_schedule() -> None:
    assert (times(rate=5, seed=3) == times(rate=5, seed=3)).all()
    assert times(rate=5, seed=3)[0] != times(rate=5, seed=4)[0]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_together_send_what_one_sends(workers: int) -> None:
    alone = schedule(config(rate=5)).arrivals
    shares = [split(alone, worker, workers) for worker in range(workers)]
    union = sorted((one for share in shares for one in share), key=lambda one: one.at)
    assert tuple(union) == alone
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_worker_outside_the_count_is_refused() -> None:
    with pytest.raises(ValueError, match="worker 2 of 2"):
        split([], 2, 2)


def test_a_rate_without_a_request_is_refused() -> None:
    with pytest.raises(ConfigError, match="gives no request"):
        schedule(config(rate=0.001, seconds=1))


def test_a_trace_is_stretched_and_cut(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text(
        "".join(
            f'{{"timestamp": {1000 * i}, "input_length": {i + 1}, "output_length": {i}}}\n'
            for i in range(2, 10)
        )
    )
    found = schedule(config(arrivals="trace", trace=str(file), slowdown_factor=2, seconds=5))
    assert [one.at for one in found.arrivals] == [0.0, 2.0, 4.0]
    assert [(one.prompt_tokens, one.output_tokens) for one in found.arrivals] == [
        (3, 2),
        (4, 3),
        (5, 4),
    ]
