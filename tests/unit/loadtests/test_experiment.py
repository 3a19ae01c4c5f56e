"""Plans, tables and the analysis of steps, faults and memory, on made-up results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from jetspec_sglang.client.errors import UsageError
from loadtests.experiment import faults, lossless, memory, tables
from loadtests.experiment.cells import ADAPTIVE, PLAIN, Cell, Point, Policy, plan, policies
from loadtests.experiment.experiment import Experiment
from loadtests.experiment.step import cost, follow
from loadtests.experiment.sweep import unfinished
from tests.unit.loadtests.build import answered

SLOW, FAST = Point("rate", 1.0), Point("rate", 4.0)
CHOSEN = policies([16, 1])


def test_policies_are_plain_every_tier_and_the_controller() -> None:
    assert [one.name for one in CHOSEN] == ["plain", "B=1", "B=16", "adaptive"]
    assert [one.name for one in policies([4], plain=False, adaptive=False)] == ["B=4"]


def test_the_plan_alternates_policies_within_a_load_and_seed() -> None:
    cells = plan(CHOSEN, [SLOW, FAST], range(3))
    assert len(cells) == len(set(cells)) == 4 * 2 * 3
    blocks = [cells[i : i + 4] for i in range(0, len(cells), 4)]
    assert all(len({(cell.point, cell.seed) for cell in block}) == 1 for block in blocks)
    assert all({cell.policy for cell in block} == set(CHOSEN) for block in blocks)
    assert len({block[0].policy for block in blocks}) == 4, "no policy is always first"


def test_a_finished_cell_is_not_run_again_and_a_rejected_one_is(tmp_path: Path) -> None:
    cells = plan(CHOSEN, [SLOW], [0])
    for cell, text in zip(cells, ['{"valid": true}', '{"valid": false}'], strict=False):
        folder = cell.folder(tmp_path)
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(text)
    assert unfinished(cells, tmp_path) == cells[1:]


def test_a_folder_holds_one_experiment(tmp_path: Path) -> None:
    mine = Experiment("float32", {"seconds": "60"}, ("--tp", "1"))
    mine.claim(tmp_path)
    mine.claim(tmp_path)
    with pytest.raises(UsageError, match="seconds was 60, is 30"):
        Experiment("float32", {"seconds": "30"}, ("--tp", "1")).claim(tmp_path)
    with pytest.raises(UsageError, match="dtype was float32, is bfloat16"):
        Experiment("bfloat16", {"seconds": "60"}, ("--tp", "1")).claim(tmp_path)


def results(**speeds: dict[Point, list[float]]) -> dict[Cell, dict]:
    names = {"plain": PLAIN, "adaptive": ADAPTIVE}
    found = {}
    for name, by_point in speeds.items():
        policy = Policy(names[name]) if name in names else Policy.static(int(name[1:]))
        for point, values in by_point.items():
            for seed, speed in enumerate(values):
                found[Cell(policy, point, seed)] = {
                    "valid": True, "window_output_throughput": speed, "output_throughput": speed, "median_tpot_ms": 1000 / speed,
                    "failed": 0, "warmup_failed": 0, "unfinished": 0, "requests": 5, "over_saturated": False,
                    "load_generator_cpu_share": 0.02,
                }  # fmt: skip
    return tables.with_speed(found)


TWO = results(
    plain={SLOW: [10, 10, 10], FAST: [40, 40, 40]},
    B1={SLOW: [10, 10, 10], FAST: [40, 40, 40]},
    B16={SLOW: [20, 22, 24], FAST: [20, 20, 20]},
    adaptive={SLOW: [19, 22, 25], FAST: [39, 40, 41]},
)


def test_every_policy_at_every_load() -> None:
    rows = tables.by_policy(TWO, [SLOW, FAST], tables.SPEED)
    assert rows[0] == ["tokens/s", "1/s", "4/s"]
    assert [row[0] for row in rows[1:]] == ["plain", "B=1", "B=16", "adaptive"]
    assert rows[3][1] == "22 (20-24)"


def test_the_controller_against_the_best_static_budget_of_each_load() -> None:
    rows = tables.comparison(TWO, [SLOW, FAST], tables.SPEED)
    assert [row[1] for row in rows[1:]] == ["B=16", "B=1"]
    assert rows[1][2].startswith("1.000 (0.950-1.042)")
    assert rows[1][3].startswith("2.200")
    slower = tables.comparison(TWO, [SLOW], "median_tpot_ms")
    assert slower[1][2].startswith("1.000"), "a lower latency is better"


def test_the_whole_sweep_counts_every_load_alike() -> None:
    rows = tables.whole_sweep(TWO, [SLOW, FAST], tables.SPEED)
    by_name = {row[0]: row for row in rows[1:]}
    assert float(by_name["B=16"][1]) == pytest.approx((0.997 * 2.0) ** 0.5, abs=0.01)
    assert by_name["B=1"][2].endswith("at 4/s")


def test_rejected_cells_are_left_out_of_comparisons_and_counted() -> None:
    some = {cell: dict(summary) for cell, summary in TWO.items()}
    some[Cell(Policy(ADAPTIVE), SLOW, 0)] |= {"valid": False, "failed": 3}
    assert len(tables.ratios(some, SLOW, tables.SPEED, Policy(PLAIN))) == 2
    assert "3 failed" in tables.notes(some)[0]
    assert tables.notes(some)[1].startswith("1 cells rejected")


@pytest.mark.parametrize(
    ("point", "change", "expected"),
    [
        (SLOW, {}, [5, 5]),
        (SLOW, {"over_saturated": True}, [10, 20]),
        (SLOW, {"unfinished": 1}, [10, 20]),
        (Point("batch", 4), {}, [10, 20]),
    ],
)
def test_tokens_are_counted_alike_for_all_policies_of_a_load(
    point: Point, change: dict[str, object], expected: list[float]
) -> None:
    found = results(plain={point: [10, 10]}, adaptive={point: [20, 20]})
    found = {cell: {**one, "output_throughput": 5} for cell, one in found.items()}
    found[Cell(Policy(PLAIN), point, 0)].update(change)
    speeds = tables.with_speed(found)
    for seed, speed in ((0, expected), (1, [10, 20] if point.kind == "batch" else [5, 5])):
        cells = [Cell(Policy(name), point, seed) for name in (PLAIN, ADAPTIVE)]
        assert [speeds[cell][tables.SPEED] for cell in cells] == speed


def test_our_table_beside_the_papers() -> None:
    batch = Point("batch", 4)
    found = results(plain={batch: [50.0]}, B16={batch: [100.0]}, adaptive={batch: [110.0]})
    header, row = tables.beside_paper(found, [batch])
    shown = dict(zip(header, row, strict=True))
    assert shown["B=16"] == "100 2.00x"
    assert shown["paper: AR"] == "204"
    assert shown["paper: B=128"] == "743 3.65x"


def test_how_a_budget_followed_a_step() -> None:
    budgets = [64] * 40 + [64, 64, 64, 32, 32, 8] + [8] * 34
    samples = [(0.5 * i, budget) for i, budget in enumerate(budgets)]
    found = follow(samples, 20.0, 20.0, rising_load=True)
    assert found is not None
    assert (found.before, found.settled) == (64, 8)
    assert (found.first_s, found.settled_s) == (1.5, 2.5)
    still = follow([(0.5 * i, 8) for i in range(80)], 20.0, 20.0, rising_load=True)
    assert still is not None
    assert (still.first_s, still.settled_s) == (None, None)
    assert follow([], 20.0, 20.0, rising_load=True) is None


def test_what_a_change_of_budget_costs() -> None:
    record = answered(due=0.0, ttft=0.05, tpot=0.1, tokens=60)
    late = [(t + (0.2 if t > 3.0 else 0.0), n) for t, n in record.progress]
    record.progress = late
    found = cost([record], [(2.5, 64), (3.0, 64), (3.5, 8), (4.0, 8)])
    assert found["requests"] == 1
    assert found["longest_ms"] == pytest.approx(300)
    assert found["usual_ms"] == pytest.approx(100)
    assert cost([record], [(2.5, 64), (3.0, 64)])["requests"] == 0


@pytest.mark.parametrize("seconds", [30.0, 1800.0])
def test_every_kind_of_fault_comes(seconds: float) -> None:
    planned = faults.plan(seconds, 0, [1, 8, 64])
    counts = Counter(one.kind for one in planned)
    assert set(counts) == {"pin", "unpin", "kill_controller", "stop_prometheus", "start_prometheus"}
    assert all(0 <= one.at <= seconds for one in planned)
    assert [one.at for one in planned] == sorted(one.at for one in planned)
    if seconds == 1800.0:
        assert counts["pin"] == 40
        assert counts["kill_controller"] == 12
        assert counts["stop_prometheus"] == 4
    assert planned == faults.plan(seconds, 0, [1, 8, 64])


def test_slope_of_memory_is_that_of_the_last_two_thirds() -> None:
    warm = [(float(t), 100.0 + 0.5 * t) for t in range(0, 100, 5)]
    flat = [(float(t), 150.0 + (t - 100) / 3600 * 12) for t in range(100, 305, 5)]
    found = memory.slopes({"scheduler": [*warm, *flat], "short": [(0.0, 1.0), (5.0, 9.0)]})
    assert found["scheduler"]["slope_mib_per_hour"] == pytest.approx(12.0)
    assert found["short"]["slope_mib_per_hour"] is None


def test_the_sample_of_answers_is_seeded_and_has_text() -> None:
    records = [answered(i, due=float(i)) for i in range(20)]
    for record in records[:15]:
        record.text = "something"
    chosen = lossless.sample(records, 5, seed=1)
    assert len(chosen) == 5
    assert chosen == lossless.sample(records, 5, seed=1)
    assert all(one.text for one in chosen)
    assert len(lossless.sample(records, 50, seed=1)) == 15
