"""`RoundCost`: a moving average of a round's seconds by rows. Pure."""

from __future__ import annotations

COST_WEIGHT = 0.1  # of a new sample in the moving average


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
