"""Plots of offline results: τ by budget, and the gain from the next node. Writes PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

Curve = Mapping[int, float]


def marginal_gain(curve: Curve) -> dict[int, float]:
    """Budget -> extra τ per node since the budget before."""
    steps = pairwise(sorted(curve))
    return {high: (curve[high] - curve[low]) / (high - low) for low, high in steps}


def plot_curves(curves: Mapping[str, Mapping[str, Curve]], file: Path) -> None:
    """One column per data set: τ above, marginal gain below; one line per label ("head, rule")."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        2, len(curves), figsize=(4 * len(curves), 6.5), squeeze=False, sharex=True
    )
    for column, (name, lines) in enumerate(curves.items()):
        top, bottom = axes[0][column], axes[1][column]
        for label, curve in lines.items():
            budgets = sorted(curve)
            top.plot(budgets, [curve[b] for b in budgets], marker="o", label=label)
            gain = marginal_gain(curve)
            bottom.plot(list(gain), list(gain.values()), marker="o", label=label)
        top.set_title(name)
        top.set_xscale("log", base=2)
        bottom.set_yscale("log")
        bottom.set_xlabel("budget B (nodes)")
    axes[0][0].set_ylabel("τ (tokens per round)")
    axes[1][0].set_ylabel("extra τ per node")
    axes[0][0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
