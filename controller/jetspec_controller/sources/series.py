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
KV_TOKENS = "sglang:max_total_num_tokens"
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
    KV_TOKENS,
    ARRIVALS,
    FINISHED,
    GENERATED,
    TTFT_BUCKET,
    TPOT_BUCKET,
)

QUEUES = frozenset({RUNNING, WAITING})

GENERATING_ENDPOINTS = frozenset(
    {"/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"}
)


def canonical(name: str) -> str:
    """The name under SGLang's own prefix; a router's re-export writes `sglang_`."""
    return "sglang:" + name[7:] if name.startswith("sglang_") else name


@dataclass(slots=True)
class Snapshot:
    """Every sample of one scrape of one server; `at` is when it was taken (scraper's clock).

    With `--enable-metrics-for-all-schedulers` every tensor- and pipeline-parallel rank repeats its
    data-parallel rank's numbers: only the first that reports for each is read. SGLang writes the
    total of a queue under an empty priority and its parts under each one: only the total is read.
    """

    at: float
    samples: dict[str, list[tuple[Labels, float]]] = field(default_factory=dict)
    speakers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, name: str, labels: Labels, value: float) -> None:
        """Raises ValueError for a rank that is not a number."""
        if name in QUEUES and labels.get("priority"):
            return
        if "tp_rank" in labels:
            rank, place = labels.get("dp_rank", ""), _place(labels)
            self.speakers[rank] = min(place, self.speakers.get(rank, place))
        self.samples.setdefault(name, []).append((labels, value))

    def of(self, name: str) -> Iterator[tuple[Labels, float]]:
        """Samples of one name, each number once."""
        for labels, value in self.samples.get(name, ()):
            rank = labels.get("dp_rank", "")
            if "tp_rank" not in labels or self.speakers[rank] == _place(labels):
                yield labels, value

    def total(self, name: str) -> float | None:
        """Sum over all series of a name; None when there is none."""
        values = [value for _, value in self.of(name)]
        return sum(values) if values else None

    @property
    def ranks(self) -> int:
        """Data-parallel ranks that report."""
        return max(1, len(self.speakers))


def _place(labels: Labels) -> tuple[int, int]:
    return int(labels.get("pp_rank", "0")), int(labels["tp_rank"])
