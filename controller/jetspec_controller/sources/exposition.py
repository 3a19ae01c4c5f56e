"""Prometheus text format to samples, for the few series that are read. No I/O.

prometheus_client does the parsing. The result is cached per series, because only the values change
between scrapes. To parse the labels of 200 servers in every tick would cost more than one core.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

from jetspec_controller.sources.series import NAMES, Labels, Snapshot, canonical

MAX_SERIES = 200_000


class ExpositionParser:
    """Keeps name and labels of every series seen, at most `MAX_SERIES` of them."""

    def __init__(self, names: Iterable[str] = NAMES) -> None:
        wanted = frozenset(names)
        self._wanted = wanted | {name.replace("sglang:", "sglang_") for name in wanted}
        self._series: dict[str, tuple[str, Labels]] = {}

    def parse(self, text: str, at: float) -> Snapshot:
        """Raises ValueError for a wanted line that is not in the text format."""
        snapshot = Snapshot(at)
        for line in text.split("\n"):
            brace = line.find("{")
            name = line[:brace] if brace > 0 else line.partition(" ")[0]
            if name not in self._wanted:
                continue
            key, value = _split(line, brace)
            series = self._series.get(key)
            if series is None:
                series = self._learn(key)
            snapshot.add(*series, float(value))
        return snapshot

    def _learn(self, key: str) -> tuple[str, Labels]:
        families = list(text_string_to_metric_families(f"{key} 0\n"))
        if len(families) != 1 or len(families[0].samples) != 1:
            raise ValueError(f"not one sample: {key[:200]!r}")
        sample = families[0].samples[0]
        if len(self._series) >= MAX_SERIES:
            self._series.clear()
        series = (canonical(sample.name), MappingProxyType(sample.labels))
        self._series[key] = series
        return series


def _split(line: str, brace: int) -> tuple[str, str]:
    """Series key and value; a timestamp after the value is dropped."""
    end = line.rfind("}") + 1 if brace > 0 else line.find(" ")
    rest = line[end:].split()
    if end <= 0 or not 1 <= len(rest) <= 2:
        raise ValueError(f"not a sample: {line[:200]!r}")
    return line[:end], rest[0]
