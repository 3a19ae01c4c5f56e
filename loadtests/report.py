"""Compares runs: a CSV row per run, a plot against the request rate, one HTML page.

Contract: finds `summary.json` under the given folders; runs are grouped by their label and rate.
Rejected runs stand in the CSV and are left out of the plot and the page's table.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests import html, plots
from loadtests.figures import number
from loadtests.results import SUMMARY

Groups = dict[str, dict[float, list[dict[str, Any]]]]

COLUMNS = (
    "label", "request_rate", "seed", "valid", "over_saturated", "requests", "completed", "failed",
    "unfinished", "failure_rate", "offered_rate", "request_throughput", "window_output_throughput",
    "output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_tpot_ms",
    "median_e2e_latency_ms", "p99_e2e_latency_ms", "accept_length", "request_goodput",
    "slo_attainment", "unserved_share", "p99_send_lag_ms", "load_generator_cpu_share", "mean_budget",
    "folder",
)  # fmt: skip


def find(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Every finished run under the folders, with its `folder` and the mean of its budget."""
    found = []
    for folder in folders:
        for file in sorted(folder.rglob(SUMMARY)):
            summary = json.loads(file.read_text())
            summary["folder"] = str(file.parent)
            summary["seed"] = summary["config"]["seed"]
            summary["mean_budget"] = _mean_budget(file.parent / "server.jsonl", summary)
            found.append(summary)
    return found


def grouped(summaries: Iterable[Mapping[str, Any]]) -> Groups:
    """label -> rate -> valid runs with a number for a rate."""
    groups: Groups = {}
    for one in summaries:
        rate = one["request_rate"]
        if one["valid"] and isinstance(rate, int | float):
            groups.setdefault(one["label"], {}).setdefault(float(rate), []).append(dict(one))
    return {label: groups[label] for label in sorted(groups, key=_order)}


def write_csv(summaries: Sequence[Mapping[str, Any]], file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore", restval="")
        writer.writeheader()
        writer.writerows(summaries)


def write_plot(summaries: Sequence[Mapping[str, Any]], file: Path) -> None:
    groups = grouped(summaries)
    budgets = {
        label: {
            rate: [one["mean_budget"] for one in runs if one["mean_budget"] is not None]
            for rate, runs in rates.items()
        }
        for label, rates in groups.items()
    }
    kept = {
        label: {rate: values for rate, values in rates.items() if values}
        for label, rates in budgets.items()
    }
    plots.sweep(groups, file, kept)


def write_figure(summaries: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Tokens/s alone, for a page with little room."""
    plots.speed(grouped(summaries), file)


def write_all(folders: Sequence[Path], out: Path) -> list[dict[str, Any]]:
    """`rates.csv`, `sweep.png`, `sweep.html` in `out`; the summaries they were made from."""
    summaries = find(folders)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(summaries, out / "rates.csv")
    write_plot(summaries, out / "sweep.png")
    groups = grouped(summaries)
    rejected = [one for one in summaries if not one["valid"]]
    parts = ["<h1>Request rates</h1>"]
    parts += [
        f'<p class="warn">rejected: {one["folder"]}: {"; ".join(one["rejected_because"])}</p>'
        for one in rejected
    ]
    parts += [html.image(out / "sweep.png"), html.table(table(groups))]
    (out / "sweep.html").write_text(html.document("Request rates", parts))
    return summaries


def table(groups: Groups) -> list[list[str]]:
    """Rows of medians over the seeds, the header first."""
    keys = (
        "window_output_throughput", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms",
        "p99_tpot_ms", "failure_rate", "slo_attainment",
    )  # fmt: skip
    rows = [["label", "rate", "runs", "over-saturated", *keys]]
    for label, rates in groups.items():
        for rate in sorted(rates):
            runs = rates[rate]
            over = sum(bool(one["over_saturated"]) for one in runs)
            values = [[one[key] for one in runs if one.get(key) is not None] for key in keys]
            shown = [number(statistics.median(one)) if one else "-" for one in values]
            rows.append([label, f"{rate:g}", str(len(runs)), str(over), *shown])
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.report",
        description="Compare finished runs: rates.csv, sweep.png, sweep.html.",
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="runs, or folders of them"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(argv)
    missing = [str(one) for one in args.folders if not one.is_dir()]
    if missing:
        parser.error(f"no folder: {', '.join(missing)}")
    if not write_all(args.folders, args.out):
        print(f"no {SUMMARY} under {', '.join(map(str, args.folders))}", file=sys.stderr)
        return 1
    print(args.out / "sweep.html")
    return 0


def _order(label: str) -> tuple[int, int, str]:
    """Plain decoding, budgets in order, the controller; then other names."""
    if label.startswith("B=") and label[2:].isdigit():
        return 1, int(label[2:]), label
    return {"plain": 0, "adaptive": 2}.get(label, 3), 0, label


def _mean_budget(file: Path, summary: Mapping[str, Any]) -> float | None:
    """Over the time in which requests were measured."""
    if not file.is_file():
        return None
    samples = [json.loads(line) for line in file.read_text().splitlines()]
    start = summary["config"]["warmup"]
    inside = [
        one["budget"]
        for one in samples
        if one["budget"] is not None and start <= one["at"] <= start + summary["duration"]
    ]
    return statistics.fmean(inside) if inside else None


if __name__ == "__main__":
    raise SystemExit(main())
