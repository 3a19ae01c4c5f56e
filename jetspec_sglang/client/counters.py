"""The engine's counters for benchmarks: parse one scrape, subtract two scrapes.

Contract: pure. Series of several ranks or labels are summed; only `budget`, `phase` and `le` are
kept apart. The names are those of `jetspec_sglang.metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from jetspec_sglang.metrics import PHASES

_KEPT = ("budget", "phase", "le")
_Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Counters:
    """Values of counters and histogram buckets of one server."""

    values: Mapping[_Key, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Counters:
        """The `jetspec_` counters of a `/metrics` answer. ValueError for another format."""
        values: dict[_Key, float] = {}
        for family in text_string_to_metric_families(text):
            if not family.name.startswith("jetspec_") or family.type == "gauge":
                continue
            for sample in family.samples:
                key = sample.name, tuple(sample.labels.get(label, "") for label in _KEPT)
                values[key] = values.get(key, 0.0) + sample.value
        return cls(values)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters({k: v - earlier.values.get(k, 0.0) for k, v in self.values.items()})

    def rounds(self, budget: int) -> float:
        return self._get("rounds_total", budget)

    def request_rounds(self, budget: int) -> float:
        return self._get("request_rounds_total", budget)

    def tau(self, budget: int) -> float:
        """Tokens per request per round at `budget`; NaN without a round."""
        rounds = self.request_rounds(budget)
        return self._get("tokens_total", budget) / rounds if rounds else float("nan")

    def phase_seconds(self, budget: int) -> dict[str, float]:
        return {p: self._get("round_seconds_total", budget, phase=p) for p in PHASES}

    def counterfactual_tau(self, budget: int, smaller: int) -> float:
        """τ that `smaller` would have had at the anchors visited at `budget`.

        Trees are nested, so a smaller tree accepts exactly the accepted nodes it holds. Raises
        KeyError where the histogram has no edge at `smaller`.
        """
        edge = ("jetspec_accepted_node_budget_bucket", (str(budget), "", f"{float(smaller)}"))
        rounds = self.request_rounds(budget)
        return 1.0 + self.values[edge] / rounds if rounds else float("nan")

    def _get(self, name: str, budget: int, phase: str = "") -> float:
        return self.values.get((f"jetspec_{name}", (str(budget), phase, "")), 0.0)
