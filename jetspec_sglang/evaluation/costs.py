"""The cost of a round on one machine, to convert τ into a simulated speed-up.

Contract: a cost file is JSON `{"verify_seconds": {"1": 0.049, "16": 0.069, ...}, "draft_seconds":
0.008}`, measured, not guessed: a server's `jetspec_round_cost_seconds` and draft phase. Rows
between two measured sizes are interpolated; outside them there is no value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class Costs(BaseModel):
    """Seconds of one target pass by rows, and of one draft pass, at batch size 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verify_seconds: dict[int, Annotated[float, Field(gt=0)]]
    draft_seconds: Annotated[float, Field(ge=0)]

    @field_validator("verify_seconds")
    @classmethod
    def _has_one_row(cls, value: dict[int, float]) -> dict[int, float]:
        if 1 not in value:
            raise ValueError("must contain the cost of 1 row (plain decoding)")
        return value

    @classmethod
    def load(cls, path: Path) -> Costs:
        try:
            return cls.model_validate_json(path.read_text())
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
            raise ValueError(f"{path}: " + "; ".join(problems)) from None

    def verify(self, rows: int) -> float:
        """Seconds of a target pass over `rows` rows; NaN outside the measured sizes."""
        sizes = sorted(self.verify_seconds)
        if not sizes[0] <= rows <= sizes[-1]:
            return float("nan")
        return float(np.interp(rows, sizes, [self.verify_seconds[size] for size in sizes]))

    def speedup(self, tau: float, rows: int) -> float:
        """Tokens per second against plain decoding: τ · c(1) / (c(rows) + draft)."""
        return tau * self.verify(1) / (self.verify(rows) + self.draft_seconds)
