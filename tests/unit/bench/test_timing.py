from itertools import count

from jetspec_sglang.bench.timing import Timing, measure


def test_reports_seconds_per_call_of_the_given_clock():
    ticks, calls = count(), []
    timing = measure(lambda: calls.append(None), repeats=3, seconds=4, clock=lambda: next(ticks))
    assert len(calls) == 1 + 3 * 4  # the warm-up took one tick, so four calls fill a run
    assert timing == Timing(median=0.25, fastest=0.25, slowest=0.25)
    assert str(Timing(2e-6, 1e-6, 3e-6)) == "2 (1-3)"
