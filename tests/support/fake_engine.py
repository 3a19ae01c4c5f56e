"""The engine behind the fake SGLang server: rounds, counters and a budget, in closed form.

No I/O and no thread. `advance(seconds)` runs the rounds that fit into that time; `families()`
renders every JETSPEC metric of the contract and the `sglang:` series a controller reads, under
the labels SGLang gives them. Costs are in seconds per round for a number of rows (running
requests x budget, the root included).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

RANK_BUCKETS = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LATENCY_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
GAUGE_REFRESH_ROUNDS = 40
PHASES = {"scheduler": 0.05, "draft": 0.2, "tree": 0.05, "verify": 0.6, "commit": 0.1}
SGLANG_LABELS = {
    "model_name": "fake-target",
    "engine_type": "unified",
    "tp_rank": "0",
    "pp_rank": "0",
    "moe_ep_rank": "0",
}


def linear_cost(rows: float) -> float:
    """Seconds of one round: a floor, then linear in rows."""
    return 0.010 + 0.00005 * rows


def log_tau(budget: float) -> float:
    """Tokens committed per request per round; 1 at budget 1, concave in log(budget)."""
    return 1.0 + 0.8 * math.log2(max(budget, 1.0))


@dataclass
class Counters:
    """Everything that a restart sets back to zero."""

    rounds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    request_rounds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    tokens: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    seconds: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    ranks: dict[int, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    rows: float = 0.0
    changes: float = 0.0
    finished: float = 0.0
    arrived: float = 0.0
    latency: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    latency_sum: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def observe(self, name: str, value: float, times: float) -> None:
        """Add `times` observations of `value` seconds to a cumulative latency histogram."""
        buckets = self.latency[name]
        for edge in (*LATENCY_BUCKETS, math.inf):
            buckets[edge] = buckets.get(edge, 0.0) + (times if value <= edge else 0.0)
        self.latency_sum[name] += times * value


@dataclass
class FakeEngine:
    """One SGLang server's decode loop.

    `budget_at(n)` follows the engine's rule: the table entry with the largest key not above n,
    else the uniform budget, rounded down to a tier.
    """

    tiers: tuple[int, ...] = (1, 16, 32, 64, 128, 256)
    max_budget: int = 256
    launch_budget: int = 64
    width: int = 8
    block_size: int = 16
    dp_size: int = 1
    running: int = 1
    waiting: int = 0
    tokens_per_request: float = 200.0
    kv_tokens: int = 65536
    kv_per_request: int = 512
    ttft_seconds: float = 0.15
    cost: Callable[[float], float] = linear_cost
    tau: Callable[[float], float] = log_tau
    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start afresh: launch budget, no table, every counter at zero."""
        self.budget = self.launch_budget
        self.table: dict[int, int] = {}
        self.last_refusal: str | None = None
        self.counters = Counters()
        self.last_round = 0.0
        self.frozen = False
        self._carry = 0.0
        self._since_refresh = float(GAUGE_REFRESH_ROUNDS)
        self._shown = (0, 0)

    def budget_at(self, running: int) -> int:
        keys = [key for key in self.table if key <= running]
        wanted = self.table[max(keys)] if keys else self.budget
        return max(tier for tier in self.tiers if tier <= wanted)

    def advance(self, seconds: float) -> None:
        """Run whole rounds for `seconds`; a frozen engine lets time pass and does nothing."""
        self.now += seconds
        if self.frozen:
            return
        if self.running == 0:
            self._shown = (0, self.waiting)
            return
        budget = self.budget_at(self.running)
        cost = self.cost(self.running * budget)
        rounds, left = divmod(self._carry + seconds, cost)
        self._carry = left
        if not rounds:
            return
        self._count(budget, rounds, rounds * cost)
        self.last_round = self.now
        self._since_refresh += rounds
        if self._since_refresh >= GAUGE_REFRESH_ROUNDS:
            self._since_refresh = 0.0
            self._shown = (self.running, self.waiting)

    def _count(self, budget: int, rounds: float, seconds: float) -> None:
        counters, requests = self.counters, rounds * self.running
        counters.rounds[budget] += rounds
        counters.request_rounds[budget] += requests
        counters.tokens[budget] += requests * self.tau(budget)
        counters.seconds[budget] += seconds
        counters.rows += requests * budget
        done = requests * self.tau(budget) / self.tokens_per_request
        counters.finished += done
        counters.arrived += done
        counters.observe("time_to_first_token", self.ttft_seconds, done)
        per_token = seconds / rounds / self.tau(budget)
        counters.observe("inter_token_latency", per_token, done)
        ranks = counters.ranks[budget]
        for edge in RANK_BUCKETS:
            held = self.tau(min(edge, budget)) - 1.0
            ranks[edge] = ranks.get(edge, 0.0) + requests * held

    def set_budget(self, changes: dict[str, float]) -> bool:
        """Apply `{"jetspec_tree_budget[.N]": value}` atomically; False and a reason if refused."""
        uniform, table = None, dict(self.table)
        for key, value in changes.items():
            name, _, batch = key.partition(".")
            if name != "jetspec_tree_budget" or not (batch or "1").isdigit() or batch == "0":
                return self._refuse(f"unknown key {key}")
            if value != int(value) or not 1 <= value <= self.max_budget:
                return self._refuse(f"{key}={value} is not an integer in 1..{self.max_budget}")
            if batch:
                table[int(batch)] = int(value)
            else:
                uniform = int(value)
        if uniform is not None:
            self.budget = uniform
            table = {int(k.split(".")[1]): int(v) for k, v in changes.items() if "." in k}
        self.table = table
        self.counters.changes += 1
        return True

    def _refuse(self, reason: str) -> bool:
        self.last_refusal = reason
        return False

    def read_back(self) -> dict[str, object]:
        """The `jetspec` entry of one rank's internal state."""
        return {
            "budget": self.budget,
            "table": {str(key): value for key, value in sorted(self.table.items())},
            "tiers": list(self.tiers),
            "max_budget": self.max_budget,
            "width": self.width,
            "block_size": self.block_size,
            "rounds": int(sum(self.counters.rounds.values())),
            "last_refusal": self.last_refusal,
        }

    def load(self, rank: int) -> dict[str, object]:
        """One entry of `/v1/loads`, its timestamp the producer's clock."""
        return {
            "timestamp": self.last_round if self.frozen else self.now,
            "dp_rank": rank,
            "num_running_reqs": self.running,
            "num_waiting_reqs": self.waiting,
            "num_used_tokens": self.running * self.kv_per_request,
            "max_total_num_tokens": self.kv_tokens,
            "max_running_requests": 256,
            "token_usage": min(1.0, self.running * self.kv_per_request / self.kv_tokens),
            "gen_throughput": 0.0,
        }

    def families(self) -> Iterator[Metric]:
        """Every family of one scrape, ranks merged into labels."""
        for rank in range(self.dp_size):
            labels = dict(SGLANG_LABELS)
            if self.dp_size > 1:
                labels["dp_rank"] = str(rank)
            yield from self._jetspec(labels)
            yield from self._sglang(labels)

    def _jetspec(self, labels: dict[str, str]) -> Iterator[Metric]:
        counters, budget = self.counters, self.budget_at(self._shown[0])
        yield _gauge("jetspec_tree_budget", labels, budget)
        yield _gauge("jetspec_tree_budget_requested", labels, self.budget)
        yield _gauge("jetspec_last_round_timestamp_seconds", labels, self.last_round)
        info = {"version": "0", "head": "fake", "tiers": ",".join(map(str, self.tiers))}
        yield _gauge("jetspec_info", {**labels, **info}, 1)
        for name in ("rounds", "request_rounds", "tokens"):
            yield _counter(f"jetspec_{name}", labels, "budget", getattr(counters, name))
        seconds = {
            (str(b), phase): total * share
            for b, total in counters.seconds.items()
            for phase, share in PHASES.items()
        }
        family = CounterMetricFamily(
            "jetspec_round_seconds", "fake", labels=[*labels, "budget", "phase"]
        )
        for (b, phase), value in seconds.items():
            family.add_metric([*labels.values(), b, phase], value)
        yield family
        yield _counter("jetspec_verify_rows", labels, None, {0: counters.rows})
        yield _counter("jetspec_budget_changes", labels, "source", {"http": counters.changes})
        costs = GaugeMetricFamily("jetspec_round_cost_seconds", "fake", labels=[*labels, "rows"])
        for power in range(14):
            costs.add_metric([*labels.values(), str(1 << power)], self.cost(1 << power))
        yield costs
        accepted = HistogramMetricFamily(
            "jetspec_accepted_node_budget", "fake", labels=[*labels, "budget"]
        )
        for b, ranks in counters.ranks.items():
            edges = [(f"{edge:.1f}", int(ranks[edge])) for edge in RANK_BUCKETS]
            edges.append(("+Inf", int(ranks[RANK_BUCKETS[-1]])))
            accepted.add_metric([*labels.values(), str(b)], edges, sum_value=0.0)
        yield accepted

    def _sglang(self, labels: dict[str, str]) -> Iterator[Metric]:
        running, waiting = self._shown
        counters = self.counters
        yield _gauge("sglang:num_running_reqs", labels, running)
        yield _gauge("sglang:num_queue_reqs", labels, waiting)
        usage = min(1.0, running * self.kv_per_request / self.kv_tokens)
        yield _gauge("sglang:token_usage", labels, usage)
        yield _gauge("sglang:max_total_num_tokens", labels, self.kv_tokens)
        yield _gauge("sglang:spec_num_draft_tokens", labels, self.budget_at(running))
        front = {k: labels[k] for k in ("model_name", "engine_type")}
        yield _counter(
            "sglang:realtime_tokens", labels, "mode", {"decode": sum(counters.tokens.values())}
        )
        yield _counter("sglang:num_requests", front, "is_streaming", {"true": counters.finished})
        yield _counter(
            "sglang:generation_tokens",
            front,
            "is_streaming",
            {"true": counters.finished * self.tokens_per_request},
        )
        entry = {"endpoint": "/v1/chat/completions", "method": "POST"}
        yield _counter("sglang:http_requests", entry, None, {0: counters.arrived})
        for name in counters.latency:
            yield _latency(name, front, counters)


def _gauge(name: str, labels: dict[str, str], value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, "fake", labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(
    name: str, labels: dict[str, str], extra: str | None, values: dict[object, float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, "fake", labels=[*labels, *([extra] if extra else [])])
    for key, value in values.items():
        family.add_metric([*labels.values(), *([str(key)] if extra else [])], value)
    return family


def _latency(name: str, labels: dict[str, str], counters: Counters) -> HistogramMetricFamily:
    family = HistogramMetricFamily(
        f"sglang:{name}_seconds", "fake", labels=[*labels, "is_streaming"]
    )
    edges = [
        ("+Inf" if edge == math.inf else str(edge), int(count))
        for edge, count in counters.latency[name].items()
    ]
    family.add_metric([*labels.values(), "true"], edges, sum_value=counters.latency_sum[name])
    return family
