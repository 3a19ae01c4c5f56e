"""τ at smaller budgets: computed from one run at a large budget, and measured at each budget.

Trees are nested. So the ranks of accepted nodes at budget B show what every B' < B would have
accepted, at the anchors that this run visited. A run at B' visits slightly different anchors. This
benchmark measures the effect. Contract: `Point` is pure; `measure` talks to the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jetspec_sglang.client.load import flush_cache, read_counters, run_load, set_budget
from jetspec_sglang.client.server import Server


@dataclass(frozen=True, slots=True)
class Point:
    """τ of a budget, computed and measured on the same prompts."""

    budget: int
    computed: float
    measured: float
    request_rounds: int

    @property
    def difference(self) -> float:
        """Computed against measured, relative."""
        return self.computed / self.measured - 1.0


def measure(
    server: Server,
    prompts: Sequence[str],
    largest: int,
    budgets: Sequence[int],
    batch: int,
    max_tokens: int,
    progress: Callable[[int], None],
) -> list[Point]:
    """One load at `largest`, then one at each of `budgets` (edges of the rank histogram)."""
    deltas = {}
    for budget in (largest, *budgets):
        progress(budget)
        set_budget(server, budget)
        flush_cache(server)
        before = read_counters(server)
        run_load(server, prompts, batch, max_tokens)
        deltas[budget] = read_counters(server) - before
    source = deltas[largest]
    return [
        Point(
            budget,
            source.counterfactual_tau(largest, budget),
            deltas[budget].tau(budget),
            int(deltas[budget].request_rounds(budget)),
        )
        for budget in budgets
    ]


def table(points: Sequence[Point], largest: int) -> list[list[str]]:
    """Rows for `report.markdown`."""
    rows = [["B'", f"τ computed from B={largest}", "τ measured", "difference", "request rounds"]]
    for point in points:
        rows.append(
            [
                str(point.budget),
                f"{point.computed:.3f}",
                f"{point.measured:.3f}",
                f"{point.difference:+.1%}",
                str(point.request_rounds),
            ]
        )
    return rows
