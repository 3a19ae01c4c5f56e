"""Files of a report, the server's own figures, and runs side by side."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from loadtests import crosscheck, figures, report, results
from loadtests.records import Record
from loadtests.series import Sample, budget_at, parse_sample
from loadtests.summary import summarise
from tests.unit.loadtests.build import answered, config, failed

SAMPLES = [Sample(0.5, budget=16.0), Sample(2.5, budget=64.0)]


def run(folder: Path, label: str, rate: float, seed: int, *, valid: bool = True) -> dict[str, Any]:
    chosen = config(rate=rate, seed=seed, seconds=4, slo="ttft:150")
    records = [answered(i, due=i / rate, ttft=0.1 + 0.02 * seed) for i in range(4)]
    records.append(failed(4, due=1.0))
    summary = {
        "label": label, "request_rate": rate, "config": chosen.model_dump(),
        "load_generator_cpu_share": 0.02, "broken_trace_lines": 0, "valid": valid,
        "rejected_because": [] if valid else ["requests were sent late"], "broken_thresholds": [],
        "nothing": float("nan"),
    } | summarise(chosen, records, 4.0)  # fmt: skip
    results.write(folder, summary, records, SAMPLES)
    return summary


def test_a_report_reads_back(tmp_path: Path) -> None:
    summary = run(tmp_path / "one", "tree <B=16>", 2.0, 0)
    stored = json.loads((tmp_path / "one" / "summary.json").read_text())
    assert stored["completed"] == 4
    assert stored["nothing"] is None, "JSON has no NaN"
    records = results.read_records(tmp_path / "one")
    assert [one.status for one in records] == ["ok"] * 4 + ["failed"]
    assert isinstance(records[0], Record)
    assert records[0].tpot == pytest.approx(0.01)
    page = (tmp_path / "one" / "report.html").read_text()
    assert "tree &lt;B=16&gt;" in page
    assert "FAILED REQUESTS: 1 of 5 (http 1)" in page
    assert "FAILED REQUESTS: 1 of 5" in figures.text(summary)
    assert not list((tmp_path / "one").glob("*.part"))


def test_keys_are_those_of_bench_serving(tmp_path: Path) -> None:
    stored = run(tmp_path / "one", "a", 2.0, 0)
    times = [
        f"{key}_{name}_ms"
        for name in ("ttft", "tpot", "itl", "e2e_latency")
        for key in ("mean", "median", "std", "p90", "p95", "p99")
    ]
    others = (
        "duration", "completed", "total_input_tokens", "total_output_tokens", "request_throughput",
        "input_throughput", "output_throughput", "total_throughput", "concurrency",
        "accept_length", "request_rate", "request_goodput", "slo_attainment",
        "slo_attainment_by_metric", "goodput_slos_ms",
    )  # fmt: skip
    assert {*times, *others} <= set(stored)


def test_runs_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for label in ("plain", "adaptive"):
        for rate in (1.0, 2.0):
            for seed in range(2):
                run(tmp_path / label / f"{rate}-{seed}", label, rate, seed)
    run(tmp_path / "adaptive" / "late", "adaptive", 2.0, 3, valid=False)
    assert report.main([str(tmp_path), "--out", str(tmp_path / "all")]) == 0
    with (tmp_path / "all" / "rates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    means = {(row["request_rate"], row["mean_budget"]) for row in rows}
    assert means == {("1.0", "40.0"), ("2.0", "16.0")}, "while requests were measured"
    assert sum(row["valid"] == "False" for row in rows) == 1
    page = (tmp_path / "all" / "sweep.html").read_text()
    assert "rejected: " in page
    assert page.count("<tr>") == 1 + 4
    groups = report.grouped(report.find([tmp_path]))
    assert [len(groups["adaptive"][rate]) for rate in (1.0, 2.0)] == [2, 2], "rejected: left out"
    assert (tmp_path / "all" / "sweep.png").stat().st_size > 20_000
    assert report.main([str(tmp_path / "all"), "--out", str(tmp_path / "none")]) == 1
    assert "no summary.json" in capsys.readouterr().err


def test_a_run_without_an_answer_has_a_report(tmp_path: Path) -> None:
    records = [failed(0), failed(1, due=1.0)]
    summary = {
        "label": "x", "config": config().model_dump(), "load_generator_cpu_share": 0.0,
        "broken_trace_lines": 2, "rejected_because": ["no request was answered"],
        "broken_thresholds": ["completed>=1: completed is 0"],
    } | summarise(config(), records, 2.0)  # fmt: skip
    results.write(tmp_path / "run", summary, records, [])
    assert [line.split(":")[0] for line in figures.notes(summary)] == [
        "FAILED REQUESTS", "TRACE", "REJECTED", "LIMIT NOT MET",
    ]  # fmt: skip


PAGE = """# HELP jetspec_tree_budget budget
jetspec_tree_budget{dp_rank="0",model_name="m"} 16.0
jetspec_tree_budget{dp_rank="1",model_name="m"} 32.0
jetspec_tree_budget_requested{dp_rank="0"} 64.0
sglang:num_running_reqs{model_name="m {x}"} NaN
sglang:num_queue_reqs{model_name="m"} 3.0
jetspec_tokens_total{budget="16"} 1.5e+02
jetspec_tokens_total{budget="32"} 50
jetspec_tokens_total{budget="64"} lots
nonsense
"""


def test_figures_of_the_server() -> None:
    found = parse_sample(PAGE, 1.0)
    assert found == Sample(1.0, budget=32.0, running=None, waiting=3.0, tokens=200.0)
    assert parse_sample("", 2.0) == Sample(2.0)


def test_the_budget_at_a_time() -> None:
    assert [budget_at(SAMPLES, at) for at in (0.1, 0.5, 2.4, 9.0)] == [None, 16, 16, 64]
    assert budget_at([Sample(0.0)], 1.0) is None


def test_the_cross_check_shows_others_over_ours() -> None:
    ours = dict.fromkeys(crosscheck.KEYS, 100.0)
    theirs = {**dict.fromkeys(crosscheck.KEYS, 102.0), "mean_ttft_ms": None}
    text = crosscheck.table({crosscheck.OURS: [ours, ours], "other": [theirs]})
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines()}
    assert "102 (102-102) 1.020x" in rows["tokens/s"]
    assert rows["TTFT mean ms"].endswith("| - |")


def test_guidellms_figures_under_our_names() -> None:
    statistics = {"successful": {"mean": 2.0, "median": 3.0}}
    names = {name for name, _, _ in crosscheck._GUIDELLM.values()}
    metrics = dict.fromkeys(names, statistics) | {"request_totals": {"successful": 8}}
    found = crosscheck.from_guidellm({"metrics": metrics, "duration": 4.0}, max_tokens=10)
    assert (found["request_throughput"], found["output_throughput"]) == (2.0, 20.0)
    assert (found["mean_e2e_latency_ms"], found["median_tpot_ms"]) == (2000.0, 3.0)
