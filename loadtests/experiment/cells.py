"""The cells of an experiment: policies x points of load x seeds, and their order.

Contract: pure. A cell is one run of the load generator; its folder holds `summary.json` once it is
finished. Cells of one load and seed follow each other, with the policies in rotating order, so that
a change of the machine's speed affects all of them equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

_T = TypeVar("_T")

PLAIN, ADAPTIVE = "plain", "adaptive"


@dataclass(frozen=True, slots=True)
class Policy:
    """Plain decoding, one static budget, or the controller."""

    name: str
    budget: int | None = None

    @classmethod
    def static(cls, budget: int) -> Policy:
        return cls(f"B={budget}", budget)

    @property
    def is_static(self) -> bool:
        return self.budget is not None


@dataclass(frozen=True, slots=True)
class Point:
    """A request rate, a number of clients (`batch`), or the trace's own rate."""

    kind: Literal["rate", "batch", "trace"]
    value: float

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.value:g}"


@dataclass(frozen=True, slots=True)
class Cell:
    policy: Policy
    point: Point
    seed: int

    def folder(self, out: Path) -> Path:
        return out / "cells" / self.policy.name / self.point.name / f"seed-{self.seed}"


def policies(tiers: Sequence[int], *, plain: bool = True, adaptive: bool = True) -> list[Policy]:
    """Plain decoding, every tier, the controller."""
    chosen = [Policy.static(tier) for tier in sorted(set(tiers))]
    return [
        *([Policy(PLAIN)] if plain else []),
        *chosen,
        *([Policy(ADAPTIVE)] if adaptive else []),
    ]


def plan(chosen: Sequence[Policy], points: Sequence[Point], seeds: Sequence[int]) -> list[Cell]:
    """Every cell, in the order of measurement."""
    cells = []
    for turn, seed in enumerate(seeds):
        for place, point in enumerate(_rotated(points, turn)):
            cells += [Cell(policy, point, seed) for policy in _rotated(chosen, turn + place)]
    return cells


def _rotated(items: Sequence[_T], by: int) -> list[_T]:
    at = by % len(items) if items else 0
    return [*items[at:], *items[:at]]
