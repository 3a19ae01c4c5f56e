"""Traces: what the loaders read, what the generators draw."""

from __future__ import annotations

import json

import numpy as np
import pytest
from jetspec_simulator.arrivals import (
    Lengths,
    Request,
    gamma,
    load_azure,
    load_mooncake,
    poisson,
    scaled,
    steps,
    swing,
)

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.4799600,110,27
"""


def gaps(trace) -> np.ndarray:
    return np.diff([r.arrival_s for r in trace.requests])


def test_azure(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(AZURE)
    assert load_azure(path).requests == (
        Request(0.0, 4808, 10),
        Request(pytest.approx(0.5), 110, 27),
    )
    assert len(load_azure(path, limit=1).requests) == 1


def test_mooncake(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [(3000, 50, 6), (0, 40, 0)]
    path.write_text(
        "\n".join(
            json.dumps({"timestamp": t, "input_length": i, "output_length": o, "hash_ids": [1]})
            for t, i, o in rows
        )
    )
    assert load_mooncake(path).requests == (Request(0.0, 40, 1), Request(3.0, 50, 6))


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (load_azure, "TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,1\n"),
        (load_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n"),
        (load_azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,many,2\n"),
        (load_mooncake, '{"timestamp": 0, "input_length": 4}\n'),
        (load_mooncake, "not json\n"),
    ],
)
def test_a_bad_line_is_named(load, text, tmp_path):
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"trace, line [12]: .*expected"):
        load(path)


def test_an_empty_trace_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    with pytest.raises(ValueError, match="holds no request"):
        load_azure(path)


def test_poisson_keeps_its_rate():
    trace = poisson("p", 5.0, 400.0, Lengths(), np.random.default_rng(0))
    assert 1 / gaps(trace).mean() == pytest.approx(5.0, rel=0.1)
    assert gaps(trace).std() == pytest.approx(gaps(trace).mean(), rel=0.1)


def test_gamma_below_one_comes_in_bursts():
    trace = gamma("b", 5.0, 0.25, 400.0, Lengths(), np.random.default_rng(0))
    assert gaps(trace).std() == pytest.approx(2 * gaps(trace).mean(), rel=0.15)


def test_steps_change_the_rate():
    trace = steps("s", [(0, 1.0), (100, 10.0)], 200.0, Lengths(), np.random.default_rng(0))
    times = np.array([r.arrival_s for r in trace.requests])
    assert (times < 100).sum() == pytest.approx(100, rel=0.3)
    assert (times >= 100).sum() == pytest.approx(1000, rel=0.15)
    assert np.all(np.diff(times) >= 0)


def test_swing_goes_to_and_fro():
    trace = swing("w", 1, 16, 60.0, 2, idle_share=2 / 3)
    assert [trace.clients(t) for t in (0, 39, 41, 61, 101)] == [1, 1, 16, 1, 16]
    assert trace.duration_s == 120.0


def test_lengths_have_their_mean():
    prompts, outputs = Lengths(200, 256).draw(np.random.default_rng(0), 4000)
    assert np.mean(prompts) == pytest.approx(200, rel=0.05)
    assert np.mean(outputs) == pytest.approx(256, rel=0.05)
    assert min(outputs) >= 1


def test_scaled_is_slower_with_shorter_prompts():
    trace = poisson("p", 5.0, 20.0, Lengths(), np.random.default_rng(0))
    slow = scaled(trace, 3.0, 0.1)
    assert slow.duration_s == pytest.approx(3 * trace.duration_s)
    assert slow.requests[0].prompt_tokens == max(int(0.1 * trace.requests[0].prompt_tokens), 1)
    assert slow.requests[0].output_tokens == trace.requests[0].output_tokens
