"""The simulated server: nothing lost, limits kept, counters that tell the truth."""

from __future__ import annotations

import pytest
from jetspec_simulator.arrivals import ClosedTrace, OpenTrace, Request
from jetspec_simulator.curves import DEVICES, TABLE_11_RATES
from jetspec_simulator.policies import Static
from jetspec_simulator.run import LatencyBounds, run
from jetspec_simulator.server import Server, ServerSpec

DEVICE = DEVICES["table11"]


def drained(spec: ServerSpec, requests: list[Request], budget: int = 64) -> Server:
    server = Server(DEVICE, spec, seed=0)
    for request in requests:
        server.submit(request)
    while server.busy:
        assert len(server.running) <= spec.max_running
        server.step(budget)
    return server


def test_every_request_gets_exactly_its_tokens():
    requests = [Request(0.0, 50 + i, 1 + 37 * i) for i in range(20)]
    server = drained(ServerSpec(max_running=8), requests)
    assert sorted(r.done_tokens for r in server.finished) == sorted(
        r.output_tokens for r in requests
    )
    assert all(0 < r.first_token_at <= r.finished_at for r in server.finished)


def test_the_kv_limit_retracts_and_still_finishes_all():
    requests = [Request(0.0, 100, 400) for _ in range(12)]
    server = drained(ServerSpec(kv_tokens=2000), requests)
    assert server.retractions > 0
    assert len(server.finished) == 12


def test_a_long_prompt_delays_the_running_requests():
    short = [Request(0.0, 10, 50)]
    alone = drained(ServerSpec(), short)
    delayed = drained(ServerSpec(), [*short, Request(0.0, 80_000, 1)])
    assert delayed.now > alone.now + 1.5


def test_counters_tell_tau_of_every_budget_up_to_the_one_that_ran():
    server = drained(ServerSpec(), [Request(0.0, 10, 4000) for _ in range(8)])
    (row,) = server.counters().by_budget
    edges = server.counters().edges
    for budget in (16, 32, 64):
        tau = 1 + row.accepted[edges.index(budget)] / row.request_rounds
        assert tau == pytest.approx(DEVICE.tau(budget), rel=0.03)
    assert row.accepted[-1] == row.accepted[edges.index(64)]


@pytest.mark.parametrize(("batch", "budget"), [(1, 128), (8, 64), (16, 32)])
def test_saturated_it_runs_at_the_surfaces_tokens_per_second(batch, budget):
    trace = ClosedTrace("c", ((0.0, batch),), 60.0)
    spec = ServerSpec(prefill_tokens_s=1e9, prefill_fixed_s=0.0)
    outcome = run(Static(budget), DEVICE, trace, spec, seed=0)
    assert outcome.rate == pytest.approx(TABLE_11_RATES[batch][budget], rel=0.05)


def test_goodput_counts_only_requests_within_their_bounds():
    trace = OpenTrace("o", tuple(Request(float(i), 10, 100) for i in range(20)))
    spec = ServerSpec()
    free = run(Static(64), DEVICE, trace, spec, seed=0)
    strict = run(Static(64), DEVICE, trace, spec, seed=0, bounds=LatencyBounds(tpot_s=1e-6))
    assert free.goodput == pytest.approx(20 * 100 / free.duration_s)
    assert strict.goodput == 0.0


def test_the_same_seed_gives_the_same_run():
    trace = ClosedTrace("c", ((0.0, 4),), 20.0)
    first, second = (run(Static(64), DEVICE, trace, ServerSpec(), seed=3) for _ in range(2))
    assert first == second
