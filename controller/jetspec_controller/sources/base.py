"""What a source of metrics is. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from jetspec_controller.core import TargetObservation
from jetspec_controller.targets import Target


class MetricSource(Protocol):
    """Reads the metrics of every server once per tick.

    An observation comes back for every target, with a `SourceError` for each input that could not
    be read; nothing is raised for a server or a Prometheus that misbehaves. The budget itself is
    not a metric: the loop adds it from the admin API's read-back.
    """

    async def observe(
        self, targets: Sequence[Target], now: float
    ) -> Mapping[str, TargetObservation]: ...

    def forget(self, target_ids: Sequence[str]) -> None:
        """Forget servers that are no longer targets."""
