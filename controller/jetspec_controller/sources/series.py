"""Samples of one server at one instant, and the series a controller reads. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Labels = Mapping[str, str]

BUDGET_COUNTERS = ("jetspec_rounds_total", "jetspec_request_rounds_total", "jetspec_tokens_total")
ROUND_SECONDS = "jetspec_round_seconds_total"
ACCEPTED_BUCKET = "jetspec_accepted_node_budget_bucket"
ROUND_COST = "jetspec_round_cost_seconds"
LAST_ROUND = "jetspec_last_round_timestamp_seconds"
RUNNING = "sglang:num_running_reqs"
WAITING = "sglang:num_queue_reqs"
TOKEN_USAGE = "sglang:token_usage"
ARRIVALS = "sglang:http_requests_total"
FINISHED = "sglang:num_requests_total"
GENERATED = "sglang:generation_tokens_total"
TTFT_BUCKET = "sglang:time_to_first_token_seconds_bucket"
TPOT_BUCKET = "sglang:inter_token_latency_seconds_bucket"
UP = "up"

NAMES: tuple[str, ...] = (
    *BUDGET_COUNTERS,
    ROUND_SECONDS,
    ACCEPTED_BUCKET,
    ROUND_COST,
    LAST_ROUND,
    RUNNING,
    WAITING,
    TOKEN_USAGE,
    ARRIVALS,
    FINISHED,
    GENERATED,
    TTFT_BUCKET,
    TPOT_BUCKET,
)

GENERATING_ENDPOINTS = frozenset(
    {"/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"}
)


def canonical(name: str) -> str:
    """The name under SGLang's own prefix; a router's re-export writes `sglang_`."""
    return "sglang:" + name[7:] if name.startswith("sglang_") else name


@dataclass(slots=True)
class Snapshot:
    """Every sample of one scrape of one server; `at` is when it was taken (scraper's clock)."""

    at: float
    samples: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)

    def add(self, name: str, labels: Labels, value: float) -> None:
        """Ranks other than tensor-parallel 0 repeat the same decode loop and are left out."""
        if labels.get("tp_rank", "0") == "0":
            self.samples.setdefault(name, []).append((labels, value))

    def of(self, name: str) -> Iterator[tuple[Labels, float]]:
        yield from self.samples.get(name, ())

    def total(self, name: str) -> float | None:
        """Sum over all series of a name; None when there is none."""
        values = self.samples.get(name)
        return None if not values else sum(value for _, value in values)

    @property
    def ranks(self) -> int:
        """Data-parallel ranks that report."""
        return max(1, len({labels.get("dp_rank", "0") for labels, _ in self.of(RUNNING)}))
