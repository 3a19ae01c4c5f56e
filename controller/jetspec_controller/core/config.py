"""The keys of the policy, validated once. Every part of the core reads only this. No I/O."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jetspec_controller.core.enums import Governor


class PolicyConfig(BaseModel):
    """How one server's budget is chosen. Times are in seconds, budgets in nodes (root included).

    The service derives a server's config from the shared one, e.g. a pin is
    ``config.model_copy(update={"governor": Governor.PINNED, "pinned_budget": 64})``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    governor: Governor = Governor.MODEL
    interval_s: float = Field(default=2.0, gt=0, le=3600, description="time between two decisions")

    min_budget: int = Field(
        default=1, ge=1, le=4096, description="lowest budget, the root included"
    )
    max_budget: int = Field(default=4096, ge=1, le=4096, description="highest budget")
    pinned_budget: int | None = Field(default=None, ge=1, le=4096)
    table: dict[int, int] = Field(
        default_factory=dict,
        description="table of the governor `table`: {min running batch: budget}",
    )
    publish_table: bool = Field(
        default=True,
        description="send a table {batch: budget}; the engine follows it within a round",
    )
    fallback_budget: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="budget after hold_s without data; default: lowest tier above 1",
    )

    tpot_objective_s: float | None = Field(
        default=None, gt=0, description="upper bound of the TPOT percentile"
    )
    ttft_objective_s: float | None = Field(
        default=None, gt=0, description="upper bound of the TTFT percentile"
    )
    kv_high_water: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="token usage that forbids a rise; rounds may use the next 5 % of the KV cache",
    )
    look_ahead_s: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="how far ahead the batch is predicted, for the KV cache and latency bounds",
    )

    max_age_s: float = Field(default=10.0, gt=0, description="older samples are stale")
    hold_s: float = Field(
        default=20.0, ge=0, description="hold this long without data, then fall back"
    )

    tolerance_up: float = Field(
        default=0.05, ge=0, lt=1, description="smallest predicted gain for a rise"
    )
    tolerance_down: float = Field(
        default=0.02, ge=0, lt=1, description="smallest predicted gain for a cut"
    )
    rise_after_ticks: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="for how many ticks a rise must be wanted; only with one number",
    )
    dwell_s: float = Field(
        default=3.0, ge=0, description="shortest time from the last change to a rise"
    )
    step_up: int = Field(default=2, ge=1, le=64, description="most tiers per tick for a rise")
    step_down: int = Field(default=64, ge=1, le=64, description="most tiers per tick for a cut")
    jitter: float = Field(
        default=0.1, ge=0, le=1, description="random share of the waits for dwell and probes"
    )

    load_half_life_s: float = Field(
        default=10.0, gt=0, description="smoothing of arrivals and lengths"
    )
    accept_half_life_s: float = Field(
        default=60.0, gt=0, description="half-life of the accept curve"
    )
    cost_half_life_s: float = Field(
        default=120.0, gt=0, description="half-life of measured round costs"
    )
    min_request_rounds: float = Field(
        default=50.0, gt=0, description="rounds needed before τ is used"
    )
    evidence_max_age_s: float = Field(
        default=3600.0, gt=0, description="τ older than this counts as extrapolated"
    )
    probe_gain: float = Field(
        default=0.02, ge=0, lt=1, description="expected gain that justifies a probe"
    )
    probe_interval_s: float = Field(
        default=10.0,
        gt=0,
        description="time between probes at a similar load, doubled after a probe that lost",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_budget > self.max_budget:
            raise ValueError(
                f"min_budget is {self.min_budget}; it must not exceed max_budget {self.max_budget}"
            )
        if self.governor is Governor.PINNED and self.pinned_budget is None:
            raise ValueError("pinned_budget is missing; governor `pinned` needs one")
        if self.governor is Governor.TABLE and not self.table:
            raise ValueError("table is empty; governor `table` needs at least one entry")
        for batch, budget in self.table.items():
            # Servers read a batch of 0 back as 1, and it would be sent again for ever.
            if batch < 1 or budget < 1:
                raise ValueError(
                    f"table entry {batch}: {budget}; a batch and a budget are at least 1"
                )
        return self
