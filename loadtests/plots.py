"""Plots of one run over time and of many runs over the request rate. Writes PNG files."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.records import Record
from loadtests.saturation import backlog
from loadtests.series import Sample
from loadtests.summary import tokens_between

SPEED = "window_output_throughput"
_COLOURS = (
    "#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c",
    "#ccb974", "#64b5cd",
)  # fmt: skip


def timeline(
    records: Sequence[Record], samples: Sequence[Sample], summary: Mapping[str, Any], file: Path
) -> None:
    """Tokens/s and running requests, TTFT and TPOT of each request, and the budget below."""
    pyplot = _pyplot()
    figure, (speed, latency, budget) = pyplot.subplots(
        3, 1, figsize=(9, 7.5), sharex=True, height_ratios=(2, 2, 1)
    )
    end = max((one.end for one in records), default=1.0)
    edges = np.linspace(0.0, max(end, 1.0), 61)
    rates = [tokens_between(records, a, b) / (b - a) for a, b in itertools.pairwise(edges)]
    speed.step(edges[:-1], rates, where="post", color=_COLOURS[0])
    speed.set_ylabel("tokens/s", color=_COLOURS[0])
    under_way = speed.twinx()
    under_way.plot(edges, backlog(records, edges), color=_COLOURS[1], linewidth=1)
    under_way.set_ylabel("requests under way", color=_COLOURS[1])
    answered = [one for one in records if one.ok]
    latency.plot(
        [one.due for one in answered], [1000 * (one.ttft or 0) for one in answered], ".",
        color=_COLOURS[2], label="TTFT",
    )  # fmt: skip
    with_tpot = [one for one in answered if one.tpot]
    latency.plot(
        [one.due for one in with_tpot], [1000 * (one.tpot or 0) for one in with_tpot], ".",
        color=_COLOURS[4], label="TPOT",
    )  # fmt: skip
    failed = [one for one in records if one.status == "failed"]
    if failed:
        latency.plot(
            [one.due for one in failed], [1.0] * len(failed), "x", color=_COLOURS[3], label="failed"
        )
    latency.set_yscale("log")
    latency.set_ylabel("ms, by arrival")
    latency.legend(fontsize="small", loc="upper right")
    _draw_budget(budget, samples)
    warmup = summary["config"]["warmup"]
    for axis in (speed, latency, budget):
        axis.axvspan(0, warmup, color="0.92", zorder=0)
    budget.set_xlabel("seconds (grey: warm-up)")
    figure.suptitle(str(summary["label"]), fontsize="medium")
    _save(pyplot, figure, file)


def sweep(
    groups: Mapping[str, Mapping[float, Sequence[Mapping[str, Any]]]],
    file: Path,
    budgets: Mapping[str, Mapping[float, Sequence[float]]] | None = None,
) -> None:
    """label -> rate -> summaries of the seeds: one line per label, the spread as error bars."""
    pyplot = _pyplot()
    slo = any(
        "slo_attainment" in s for rates in groups.values() for one in rates.values() for s in one
    )
    panels = [
        ("window_output_throughput", "tokens/s", "linear"),
        ("median_ttft_ms", "TTFT p50, ms", "log"),
        ("p99_ttft_ms", "TTFT p99, ms", "log"),
        ("median_tpot_ms", "TPOT p50, ms", "linear"),
        ("p99_tpot_ms", "TPOT p99, ms", "linear"),
        ("request_goodput", "good requests/s (within the SLO)", "linear") if slo
        else ("request_throughput", "answered requests/s", "linear"),
    ]  # fmt: skip
    figure, axes = pyplot.subplots(
        4, 2, figsize=(11, 13), sharex=True, height_ratios=(1, 1, 1, 0.6)
    )
    for axis, (key, name, scale) in zip(axes.flat, panels, strict=False):
        for number, (label, rates) in enumerate(groups.items()):
            _line(axis, label, rates, key, _COLOURS[number % len(_COLOURS)])
        axis.set_ylabel(name)
        axis.set_yscale(scale)
    if groups:
        axes[0][0].legend(fontsize="small")
    under, share = axes[3]
    for number, label in enumerate(groups):
        found = (budgets or {}).get(label, {})
        if found:
            colour = _COLOURS[number % len(_COLOURS)]
            means = [statistics.fmean(found[rate]) for rate in sorted(found)]
            spread = [
                [mean - min(found[rate]) for mean, rate in zip(means, sorted(found), strict=True)],
                [max(found[rate]) - mean for mean, rate in zip(means, sorted(found), strict=True)],
            ]
            under.errorbar(sorted(found), means, spread, marker="o", color=colour, capsize=2)
    under.set_ylabel("budget B: mean, range")
    under.set_yscale("log", base=2)
    under.yaxis.set_major_formatter("{x:g}")
    for number, (label, rates) in enumerate(groups.items()):
        _line(share, label, rates, "unserved_share", _COLOURS[number % len(_COLOURS)])
    share.set_ylabel("growth of backlog / arrivals")
    for axis in axes[3]:
        axis.set_xlabel("request rate (1/s)")
    _save(pyplot, figure, file)


def speed(groups: Mapping[str, Mapping[float, Sequence[Mapping[str, Any]]]], file: Path) -> None:
    """Tokens/s against the request rate: plain decoding, the budgets that are best somewhere, and
    the controller.
    """
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(7, 4.2))
    best = _best_somewhere(groups)
    shown = [label for label in groups if not label.startswith("B=") or label in best]
    for number, label in enumerate(shown):
        _line(axis, label, groups[label], SPEED, _COLOURS[number % len(_COLOURS)])
    axis.set_xlabel("request rate (1/s)")
    axis.set_ylabel("tokens/s")
    axis.set_ylim(bottom=0)
    if shown:
        axis.legend(fontsize="small")
    _save(pyplot, figure, file)


def _best_somewhere(
    groups: Mapping[str, Mapping[float, Sequence[Mapping[str, Any]]]],
) -> set[str]:
    """Static budgets with the highest median at one rate or more."""
    medians: dict[float, dict[str, float]] = {}
    for label, rates in groups.items():
        if label.startswith("B="):
            for rate, runs in rates.items():
                medians.setdefault(rate, {})[label] = statistics.median(one[SPEED] for one in runs)
    return {max(by_label, key=lambda label: by_label[label]) for by_label in medians.values()}


def _line(
    axis: Any, label: str, rates: Mapping[float, Sequence[Any]], key: str, colour: str
) -> None:
    points = []
    for rate in sorted(rates):
        values = [one[key] for one in rates[rate] if one.get(key) is not None]
        if values:
            points.append((rate, statistics.median(values), min(values), max(values)))
    if not points:
        return
    at, middle, low, high = zip(*points, strict=True)
    below = [m - value for m, value in zip(middle, low, strict=True)]
    above = [value - m for m, value in zip(middle, high, strict=True)]
    style = "--" if label.startswith("plain") else "-"
    width = 2.4 if label.startswith("adaptive") else 1.2
    axis.errorbar(
        at, middle, [below, above], marker="o", markersize=4, capsize=2,
        label=label, color=colour, linestyle=style, linewidth=width,
    )  # fmt: skip


def _draw_budget(axis: Any, samples: Sequence[Sample]) -> None:
    known = [one for one in samples if one.budget]
    axis.set_ylabel("budget B")
    if not known:
        axis.text(0.5, 0.5, "the server exports no budget", ha="center", transform=axis.transAxes)
        return
    axis.step([one.at for one in known], [one.budget for one in known], where="post", color="0.2")
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter("{x:g}")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(pyplot: Any, figure: Any, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
