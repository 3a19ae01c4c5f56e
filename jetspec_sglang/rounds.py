"""`Round`: the result of one round and the time of each phase; `RoundCost`: seconds by rows."""

from __future__ import annotations

from dataclasses import dataclass, field

PHASES = ("draft", "tree", "verify", "commit")
COST_WEIGHT = 0.1  # of a new sample in the moving average


@dataclass(frozen=True, slots=True)
class Round:
    """One draft + verify + commit of the running batch.

    rows: the rows of the target's GEMMs, requests times nodes. tokens: committed, bonus included.
    seconds: by phase; the draft phase is 0 at budget 1.
    """

    budget: int
    requests: int
    rows: int
    tokens: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())


def rows_bucket(rows: int) -> int:
    """The smallest power of two that is at least `rows`."""
    return 1 << max(rows - 1, 0).bit_length()


class RoundCost:
    """Moving average of a round's seconds per power-of-two bucket of rows."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def seed(self, rows: int, seconds: float) -> None:
        """A calibrated value, the first one of its bucket."""
        self.seconds.setdefault(rows_bucket(rows), seconds)

    def update(self, rows: int, seconds: float) -> tuple[int, float]:
        """Add one round. Returns the bucket and its new average."""
        bucket = rows_bucket(rows)
        before = self.seconds.get(bucket, seconds)
        self.seconds[bucket] = before + COST_WEIGHT * (seconds - before)
        return bucket, self.seconds[bucket]
