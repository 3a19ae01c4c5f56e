"""The `jetspec_` series as data: name, kind, labels, help. No I/O, no imports of weight.

`metrics` creates its series from this list and the dashboards check their queries against it, so
each name exists in one place only. Names and labels are a contract: dashboards, alerts and the
controller are built on them. SGLang's own labels (`model_name`, `tp_rank`, `dp_rank`, ...) come on
top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RANK_BUCKETS = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
INFO_LABELS = ("version", "sglang", "head", "causal", "rule", "tiers", "width", "block_size")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as exported; `buckets` are a histogram's upper bounds."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[int, ...] = ()


TREE_BUDGET = Metric("jetspec_tree_budget", "gauge", "Budget of the last round.")
TREE_BUDGET_REQUESTED = Metric(
    "jetspec_tree_budget_requested", "gauge", "Uniform budget that was requested."
)
ROUNDS = Metric("jetspec_rounds_total", "counter", "Rounds run.", ("budget",))
REQUEST_ROUNDS = Metric(
    "jetspec_request_rounds_total", "counter", "Requests times rounds.", ("budget",)
)
TOKENS = Metric("jetspec_tokens_total", "counter", "Tokens committed, bonus included.", ("budget",))
ROUND_SECONDS = Metric(
    "jetspec_round_seconds_total", "counter", "Seconds in rounds.", ("budget", "phase")
)
ACCEPTED_NODE_BUDGET = Metric(
    "jetspec_accepted_node_budget",
    "histogram",
    "Smallest budget whose tree would have contained an accepted node (rank + 1).",
    ("budget",),
    RANK_BUCKETS,
)
VERIFY_ROWS = Metric("jetspec_verify_rows_total", "counter", "Rows that the target computed.")
ROUND_COST = Metric(
    "jetspec_round_cost_seconds", "gauge", "Seconds of a round by rows (EMA).", ("rows",)
)
BUDGET_CHANGES = Metric(
    "jetspec_budget_changes_total", "counter", "Changes of the budget plan.", ("source",)
)
LAST_ROUND = Metric("jetspec_last_round_timestamp_seconds", "gauge", "Unix time of the last round.")
INFO = Metric("jetspec_info", "gauge", "What this engine runs.", INFO_LABELS)

METRICS = (
    TREE_BUDGET,
    TREE_BUDGET_REQUESTED,
    ROUNDS,
    REQUEST_ROUNDS,
    TOKENS,
    ROUND_SECONDS,
    ACCEPTED_NODE_BUDGET,
    VERIFY_ROWS,
    ROUND_COST,
    BUDGET_CHANGES,
    LAST_ROUND,
    INFO,
)
