"""The policy's knobs, validated once; every part of the core reads this and nothing else. No I/O."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jetspec_controller.core.enums import Governor


class PolicyConfig(BaseModel):
    """How one server's budget is chosen. Times in seconds, budgets in nodes (root included).

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
        default_factory=dict, description="hand-set {min running batch: budget}, governor `table`"
    )
    publish_table: bool = Field(
        default=True,
        description="send a whole {batch: budget} table; the engine follows within a round",
    )
    fallback_budget: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="after hold_s without data; default: lowest tier above 1",
    )

    tpot_objective_s: float | None = Field(
        default=None, gt=0, description="bound on the TPOT percentile"
    )
    ttft_objective_s: float | None = Field(
        default=None, gt=0, description="bound on the TTFT percentile"
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
        description="how far ahead the batch is expected: KV cache, latency bounds",
    )

    max_age_s: float = Field(default=10.0, gt=0, description="older samples are stale")
    hold_s: float = Field(
        default=20.0, ge=0, description="hold this long without data, then fall back"
    )

    tolerance_up: float = Field(
        default=0.05, ge=0, lt=1, description="predicted gain a rise must exceed"
    )
    tolerance_down: float = Field(
        default=0.02, ge=0, lt=1, description="predicted gain a cut must exceed"
    )
    rise_after_ticks: int = Field(
        default=2, ge=1, le=1000, description="ticks a rise must be wanted; one number only"
    )
    dwell_s: float = Field(default=3.0, ge=0, description="no rise sooner after the last change")
    step_up: int = Field(default=2, ge=1, le=64, description="tiers a rise may climb in a tick")
    step_down: int = Field(default=64, ge=1, le=64, description="tiers a cut may fall in a tick")
    jitter: float = Field(
        default=0.1, ge=0, le=1, description="share of dwell and probe waits spread out"
    )

    load_half_life_s: float = Field(
        default=10.0, gt=0, description="smoothing of arrivals and lengths"
    )
    accept_half_life_s: float = Field(default=60.0, gt=0, description="memory of the accept curve")
    cost_half_life_s: float = Field(
        default=120.0, gt=0, description="memory of measured round costs"
    )
    min_request_rounds: float = Field(default=50.0, gt=0, description="rounds before τ is believed")
    evidence_max_age_s: float = Field(
        default=3600.0, gt=0, description="older τ counts as extrapolated"
    )
    probe_gain: float = Field(
        default=0.02, ge=0, lt=1, description="expected gain that justifies a probe"
    )
    probe_interval_s: float = Field(
        default=10.0,
        gt=0,
        description="time between probes at one size of load, doubled on loss",
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
