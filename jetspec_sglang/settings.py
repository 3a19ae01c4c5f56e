"""`Settings`: what an operator can set in addition to SGLang's own flags.

One JSON object in the environment variable `JETSPEC_SETTINGS`, for example
`{"budget": 32, "table": {"8": 16}}`. An unknown key, a wrong type or a value out of range is
one error at start-up that names the field, the value and what is allowed.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

ENVIRONMENT_VARIABLE = "JETSPEC_SETTINGS"
MAX_BUDGET_LIMIT = 1024
RULES = ("best_first", "accum_logp", "chain")
"""How a tree may be chosen; `tree.build_tree` says what each rule does."""

Budget = Annotated[int, Field(ge=1, le=MAX_BUDGET_LIMIT)]


class Settings(BaseModel):
    """Start-up settings; budgets count nodes per request per round, root included."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    budget: Budget | None = None
    """Uniform budget to start with; None takes the platform's default."""
    table: dict[Annotated[int, Field(ge=1)], Budget] = Field(default_factory=dict)
    """Budget from that many running requests on, over the uniform one."""
    tiers: tuple[Budget, ...] | None = None
    """Budgets that the server reports as worth choosing between."""
    rule: str = "best_first"
    """How trees are chosen: best_first, accum_logp or chain."""
    calibration_seconds: Annotated[float, Field(ge=0, le=60)] = 3.0
    """Time the start-up calibration may take; 0 skips it."""
    overlap: bool | None = None
    """Overlap scheduling; None takes the platform's default (off on the host, on with CUDA)."""
    draft_trace: Path | None = None
    """File that every round's drafts are appended to as JSON lines (diagnosis, slow)."""

    @field_validator("rule")
    @classmethod
    def _known_rule(cls, rule: str) -> str:
        if rule not in RULES:
            raise ValueError(f"must be one of {', '.join(RULES)}")
        return rule

    @field_validator("tiers")
    @classmethod
    def _increasing(cls, tiers: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if tiers is not None and (not tiers or any(a >= b for a, b in itertools.pairwise(tiers))):
            raise ValueError("must be a non-empty list that increases strictly")
        return tiers

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings in `JETSPEC_SETTINGS`, or the defaults when it is unset or empty.

        Raises ValueError with one line per wrong field.
        """
        text = environment.get(ENVIRONMENT_VARIABLE, "").strip()
        if not text:
            return cls()
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{ENVIRONMENT_VARIABLE} is not JSON: {error}") from None
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'])) or 'value'} = {item['input']!r}: "
                f"{_allowed(item['type'], item['msg'])}"
                for item in error.errors()
            )
            raise ValueError(f"{ENVIRONMENT_VARIABLE}: {problems}") from None


def _allowed(kind: str, message: str) -> str:
    """What would have been accepted, in one clause."""
    if kind == "extra_forbidden":
        return f"unknown key; allowed: {', '.join(Settings.model_fields)}"
    return message[:1].lower() + message[1:]
