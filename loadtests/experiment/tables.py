"""Tables of an experiment: every policy at every load, and the gain from the controller.

Contract: pure. Figures are medians over the seeds with the smallest and largest; comparisons are
made within a seed, cell against cell, and their median is shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.experiment.cells import ADAPTIVE, PLAIN, Cell, Point, Policy
from loadtests.figures import number

Results = Mapping[Cell, Mapping[str, Any]]

SPEED = "tokens_per_second"
METRICS = {
    SPEED: "tokens/s",
    "median_tpot_ms": "TPOT p50 ms",
    "p99_tpot_ms": "TPOT p99 ms",
    "p99_ttft_ms": "TTFT p99 ms",
    "request_goodput": "good requests/s",
}
LOWER_IS_BETTER = {"median_tpot_ms", "p99_tpot_ms", "p99_ttft_ms"}
PAPER = {
    1: {"plain": 127.8, "B=16": 224.0, "B=32": 312.0, "B=64": 447.3, "B=128": 553.3},
    2: {"plain": 163.3, "B=16": 266.2, "B=32": 360.3, "B=64": 516.0, "B=128": 621.6},
    4: {"plain": 203.8, "B=16": 433.6, "B=32": 534.2, "B=64": 664.2, "B=128": 742.9},
    8: {"plain": 246.2, "B=16": 679.3, "B=32": 839.3, "B=64": 859.3, "B=128": 803.5},
    16: {"plain": 287.3, "B=16": 891.8, "B=32": 1094.6, "B=64": 995.8, "B=128": 803.1},
}
PAPER_SOURCE = (
    "The paper (arXiv 2606.18394v3, Table 11): tokens/s of Qwen3-8B in vLLM on one H100; its "
    "caption says MATH-500, its appendix E HumanEval."
)


def with_speed(results: Results) -> dict[Cell, dict[str, Any]]:
    """The summaries with `SPEED`, counted alike for every policy of a load and seed.

    Where every policy keeps up, a policy's tokens are those of the same requests, up to its last
    answer (`output_throughput`): a window would cut off more or fewer tokens at its ends. Where one
    does not keep up, and for clients in a closed loop, it is `window_output_throughput`.
    """
    behind = {
        (cell.point, cell.seed)
        for cell, summary in results.items()
        if cell.point.kind == "batch" or summary["over_saturated"] or summary["unfinished"]
    }
    found = {}
    for cell, summary in results.items():
        windowed = (cell.point, cell.seed) in behind
        key = "window_output_throughput" if windowed else "output_throughput"
        found[cell] = {**summary, SPEED: summary[key]}
    return found


def by_policy(results: Results, points: Sequence[Point], metric: str) -> list[list[str]]:
    """One row per policy, one column per load, the header first."""
    chosen = list(dict.fromkeys(cell.policy for cell in results))
    rows = [[METRICS.get(metric, metric), *(_head(point) for point in points)]]
    for policy in sorted(chosen, key=_order):
        found = [_values(results, policy, point, metric) for point in points]
        rows.append([policy.name, *map(_spread, found)])
    return rows


def comparison(results: Results, points: Sequence[Point], metric: str) -> list[list[str]]:
    """At each load: the best static budget, and the controller against it and against plain."""
    rows = [["load", "best static", "adaptive / best static", "adaptive / plain", "seeds"]]
    for point in points:
        best = best_static(results, point, metric)
        if best is None:
            continue
        against = ratios(results, point, metric, best)
        plain = ratios(results, point, metric, Policy(PLAIN))
        rows.append([_head(point), best.name, _ratio(against), _ratio(plain), str(len(against))])
    return rows


def whole_sweep(results: Results, points: Sequence[Point], metric: str) -> list[list[str]]:
    """Geometric mean over all loads and seeds of a policy against the adaptive one."""
    rows = [["policy", f"{METRICS.get(metric, metric)}: adaptive / policy", "worst load"]]
    for policy in sorted({cell.policy for cell in results}, key=_order):
        if policy.name == ADAPTIVE:
            continue
        each = {point: ratios(results, point, metric, policy) for point in points}
        each = {point: values for point, values in each.items() if values}
        if each:
            means = {point: statistics.geometric_mean(values) for point, values in each.items()}
            worst = min(means, key=lambda point: means[point])
            total = statistics.geometric_mean(means.values())
            rows.append([policy.name, f"{total:.3f}", f"{means[worst]:.3f} at {_head(worst)}"])
    return rows


def beside_paper(results: Results, points: Sequence[Point]) -> list[list[str]]:
    """The paper's table: tokens/s by batch and budget, ours and theirs, as ratios to plain."""
    names = list(
        dict.fromkeys(cell.policy.name for cell in sorted(results, key=lambda c: _order(c.policy)))
    )
    columns = [name for name in names if name != PLAIN]
    theirs = [name for name in PAPER[1] if name != PLAIN]
    rows = [["batch", "plain", *columns, "paper: AR", *(f"paper: {name}" for name in theirs)]]
    for point in points:
        plain = _middle(_values(results, Policy(PLAIN), point, SPEED))
        row = [f"{point.value:g}", number(plain)]
        for name in columns:
            policy = next(cell.policy for cell in results if cell.policy.name == name)
            row.append(_against(_middle(_values(results, policy, point, SPEED)), plain))
        paper = PAPER.get(int(point.value))
        row.append(number(paper["plain"]) if paper else "-")
        row += [_against(paper[name], paper["plain"]) if paper else "-" for name in theirs]
        rows.append(row)
    return rows


def best_static(results: Results, point: Point, metric: str) -> Policy | None:
    """The static budget with the best median; B = 1 counts as one."""
    found = {
        policy: middle
        for policy in {cell.policy for cell in results if cell.policy.is_static}
        if (middle := _middle(_values(results, policy, point, metric))) is not None
    }
    if not found:
        return None
    choose = min if metric in LOWER_IS_BETTER else max
    return choose(found, key=lambda policy: found[policy])


def ratios(results: Results, point: Point, metric: str, other: Policy) -> list[float]:
    """How much better the adaptive policy is than `other`, seed by seed; above 1 is better."""
    found = []
    for cell, summary in results.items():
        if cell.policy.name != ADAPTIVE or cell.point != point:
            continue
        against = results.get(Cell(other, point, cell.seed))
        if against and summary["valid"] and against["valid"]:
            mine, theirs = summary.get(metric), against.get(metric)
            if mine and theirs:
                found.append(theirs / mine if metric in LOWER_IS_BETTER else mine / theirs)
    return found


def notes(results: Results) -> list[str]:
    """Notes for the reader: failures, rejected and over-saturated cells, the generator's CPU."""
    failed = sum(one["failed"] + one["warmup_failed"] for one in results.values())
    sent = sum(one["requests"] for one in results.values())
    rejected = sum(not one["valid"] for one in results.values())
    over = sum(bool(one["over_saturated"]) for one in results.values())
    left = sum(one["unfinished"] for one in results.values())
    shares = [one["load_generator_cpu_share"] for one in results.values()]
    lines = [
        f"{len(results)} cells, {sent} measured requests, {failed} failed (warm-up included).",
        f"{rejected} cells rejected (left out of comparisons), {over} over-saturated; in these "
        f"{left} requests had no answer when the cell ended.",
    ]
    if shares:
        lines.append(
            f"The load generator took {statistics.mean(shares):.3f} cores on the mean, "
            f"{max(shares):.3f} at most."
        )
    return lines


def _values(results: Results, policy: Policy, point: Point, metric: str) -> list[float]:
    return [
        float(summary[metric])
        for cell, summary in results.items()
        if cell.policy == policy
        and cell.point == point
        and summary["valid"]
        and summary.get(metric) is not None
    ]


def _middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = number(statistics.median(values))
    return f"{middle} ({number(min(values))}-{number(max(values))})" if len(values) > 1 else middle


def _ratio(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.3f} ({min(values):.3f}-{max(values):.3f})"


def _against(value: float | None, plain: float | None) -> str:
    if value is None:
        return "-"
    return f"{number(value)} {value / plain:.2f}x" if plain else number(value)


def _head(point: Point) -> str:
    return {"rate": f"{point.value:g}/s", "batch": f"batch {point.value:g}", "trace": "trace"}[
        point.kind
    ]


def _order(policy: Policy) -> tuple[int, int]:
    return (0, 0) if policy.name == PLAIN else (1, policy.budget) if policy.budget else (2, 0)
