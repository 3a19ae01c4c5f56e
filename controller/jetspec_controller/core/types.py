"""Observations of a server and decisions for it.

All types here are frozen values. Sources build a :class:`TargetObservation` per server and tick,
``decide`` turns it into a :class:`Decision` and the next ``TargetState``, the actuator sends the
decision. No I/O and no clock: times are seconds on the controller's clock unless a field says that
it is the server's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jetspec_controller.core.enums import Action, Clamp, CostSource, Fault, Governor, Reason, Signal

RANK_EDGES: tuple[int, ...] = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Upper edges (``le``) of ``jetspec_accepted_node_budget``: the smallest budget holding a node."""


@dataclass(frozen=True, slots=True)
class SourceError:
    """One unusable input of one server at one tick."""

    signal: Signal
    fault: Fault
    detail: str = ""


Table = tuple[tuple[int, int], ...]
"""Sorted (min running batch, budget) pairs; the first batch is 1. Empty: a uniform budget."""


@dataclass(frozen=True, slots=True)
class BudgetReadback:
    """Read-back of ``internal_states[i]["jetspec"]``; tiers ascending."""

    budget: int
    tiers: tuple[int, ...]
    max_budget: int
    table: Table = ()
    width: int | None = None
    block_size: int | None = None
    rounds: int | None = None
    last_refusal: str | None = None
    consistent: bool = True  # False: data-parallel ranks report different budgets or tables


@dataclass(frozen=True, slots=True)
class BudgetCounters:
    """Totals since the server's start for rounds run at one budget, summed over DP ranks.

    ``accepted[i]`` is the cumulative ``jetspec_accepted_node_budget`` bucket with
    ``le = edges[i]``: accepted nodes (root excluded) with rank < edges[i].
    """

    budget: int
    rounds: float  # jetspec_rounds_total
    request_rounds: float  # jetspec_request_rounds_total
    tokens: float  # jetspec_tokens_total
    seconds: float  # jetspec_round_seconds_total, all phases
    accepted: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RoundCounters:
    """Raw counters of one scrape: `decide` takes the differences, so a repeated scrape adds
    nothing and a reset is seen. From them come τ(B′) of every B′ up to the budget of the rounds,
    the mean batch, and seconds per round when there is no cost gauge.
    """

    by_budget: tuple[BudgetCounters, ...]
    edges: tuple[int, ...] = RANK_EDGES


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Seconds of one round with ``rows`` = batch × budget."""

    rows: float
    seconds: float
    age_s: float = 0.0
    samples: float = 1.0


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Rows → seconds per round; points in ascending rows."""

    points: tuple[CostPoint, ...]
    source: CostSource


@dataclass(frozen=True, slots=True)
class AcceptPoint:
    """τ at one budget: ``1 + accepted / request_rounds`` over rounds whose budget was at least it
    (paper arXiv 2606.18394 calls it acceptance length; bonus token included).
    """

    budget: int
    tau: float
    request_rounds: float  # weight behind the value; 0 when extrapolated
    age_s: float
    extrapolated: bool = False


@dataclass(frozen=True, slots=True)
class AcceptCurve:
    """τ(B) as the decision used it, points in ascending budget, monotone and concave in B."""

    points: tuple[AcceptPoint, ...]


@dataclass(frozen=True, slots=True)
class LatencyPercentiles:
    """Measured at one percentile (0..1) over the source's window; None where not known."""

    percentile: float
    tpot_s: float | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class TargetObservation:
    """All that is known of one server at one tick.

    Loads are per data-parallel rank (a rank's round sees its own batch); counters are sums. An
    input that could not be read is None, and a :class:`SourceError` gives the reason. None never
    means zero. ``ages`` holds the sample age in seconds per signal where the source knows it.
    """

    target: str
    observed_at: float
    running_requests: float | None = None
    waiting_requests: float | None = None
    max_running_requests: float | None = None  # the server's own limit per rank
    token_usage: float | None = None  # 0..1
    kv_tokens: float | None = None  # size of the KV cache per rank
    arrival_rate: float | None = None  # requests/s per rank
    mean_output_tokens: float | None = None  # per request
    tokens_per_second: float | None = None  # committed per wall second and rank
    producer_timestamp: float | None = None  # server's clock; only its movement is used
    producer_ticks_when_idle: bool = False  # True for /v1/loads, False for last_round_timestamp
    started_at: float | None = None  # server's process start time, server's clock
    budget: BudgetReadback | None = None
    counters: RoundCounters | None = None
    cost: CostCurve | None = None
    latency: LatencyPercentiles | None = None
    overwrites: int = 0  # recent changes of the budget or table by somebody else
    ages: tuple[tuple[Signal, float], ...] = ()
    errors: tuple[SourceError, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """One tier as the model sees it for the expected batch."""

    budget: int
    batch: float  # expected over the next interval if this budget is used
    tau: float  # tokens per request per round
    round_s: float  # seconds per round
    token_s: float  # seconds per token of one request = round_s / tau
    extrapolated: bool  # no fresh measurement of τ
    doubt: float = 0.0  # standard deviation of log token_s against the budget in force
    feasible: bool = True  # within the objectives


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation: inputs, alternatives, limits, and when the decision can change again."""

    batch_now: float | None = None
    batch_expected: float | None = None  # the largest within look_ahead_s
    waiting: float | None = None
    arrival_rate: float | None = None
    output_tokens: float | None = None
    token_usage: float | None = None
    kv_ceiling: int | None = None  # largest budget the KV cache has room for; None: all
    tokens_per_second: float | None = None
    candidates: tuple[Candidate, ...] = ()
    best_budget: int | None = None  # before tolerance, dwell and steps
    gain: float | None = None  # predicted share of seconds per token saved by best_budget
    confidence: float = 0.0  # 0..1, from the request rounds behind τ of the decided budget
    extrapolated: bool = False  # the decided budget has no fresh measurement of τ
    clamps: tuple[Clamp, ...] = ()
    faults: tuple[SourceError, ...] = ()
    overwrites: int = 0  # recent changes of the budget or table by somebody else
    accept: AcceptCurve | None = None
    cost: CostCurve | None = None
    next_change_at: float | None = None  # earliest time of a rise; None: at any tick


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision for one server. ``budget`` is the uniform budget, or under a table the entry
    for the expected batch; None when nothing is known about the server.
    """

    target: str
    at: float
    tick: int
    governor: Governor
    action: Action
    reason: Reason
    budget: int | None
    table: Table = ()
    explanation: Explanation = field(default_factory=Explanation)

    @property
    def applies(self) -> bool:
        """Whether the actuator has something to send."""
        return self.action is not Action.HOLD and self.governor is not Governor.ADVISORY
