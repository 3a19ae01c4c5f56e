"""Chooses one view of a server from an answer that may contain several. No I/O.

A server appears several times if two replicas of a Prometheus scrape it, if a receiver stores each
sample twice, or if two jobs scrape it. A sum would count it twice. The labels of its `up` series
are those that the scraper added; series that carry all of them belong to that scraper. Without an
`up` series, `REPLICA_LABELS` tell replicas apart. The view with `up` 1 and the newest sample is
read. All others are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetspec_controller.sources.series import UP, Labels, canonical

REPLICA_LABELS = ("receive_replica", "prometheus_replica", "replica", "__replica__")

Key = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class View:
    """The data of one scraper about one server: series by name, and the last `up` with its time."""

    series: list[tuple[str, Labels, Sequence[Any]]] = field(default_factory=list)
    up: tuple[float, float] | None = None
    newest: float = 0.0

    @property
    def rank(self) -> tuple[bool, bool, float]:
        """Higher is better: not known to be down, then with series, then new."""
        return self.up is None or self.up[1] != 0, bool(self.series), self.newest


class Views:
    """Every view of one server in one answer."""

    def __init__(self) -> None:
        self._up: list[tuple[Labels, tuple[float, float]]] = []
        self._series: list[tuple[str, Labels, Sequence[Any]]] = []

    def add(self, labels: Labels, values: Sequence[Any]) -> None:
        """Raises KeyError, IndexError, TypeError or ValueError for a series that is malformed."""
        name, (at, value) = canonical(labels["__name__"]), values[-1]
        if name == UP:
            self._up.append((labels, (float(at), float(value))))
        else:
            float(at)
            self._series.append((name, labels, values))

    def best(self) -> View:
        """The view to read."""
        found: dict[tuple[int, Key], View] = {}
        scrapers = [_without_name(labels) for labels, _ in self._up]
        for place, (labels, up) in enumerate(self._up):
            view = found.setdefault((place, _replica(labels)), View())
            view.up, view.newest = up, up[0]
        for name, labels, values in self._series:
            view = found.setdefault((_scraper(scrapers, labels), _replica(labels)), View())
            view.series.append((name, labels, values))
            view.newest = max(view.newest, float(values[-1][0]))
        if self._up and all(value == 0 for _, (_, value) in self._up):
            last = max(up for _, up in self._up)
            for view in found.values():
                view.up = view.up or last
        return max(found.values(), key=lambda view: view.rank, default=View())


def _scraper(scrapers: Sequence[Mapping[str, str]], labels: Labels) -> int:
    """The place of the scraper that took a series, -1 if none is known to have."""
    matching = (i for i, own in enumerate(scrapers) if own.items() <= labels.items())
    return next(matching, -1)


def _without_name(labels: Labels) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != "__name__"}


def _replica(labels: Labels) -> Key:
    return tuple((key, labels[key]) for key in REPLICA_LABELS if key in labels)


def variants(name: str) -> Iterator[str]:
    """The spellings of a name: SGLang's own, and a router's re-export of it."""
    yield name
    if name.startswith("sglang:"):
        yield "sglang_" + name[7:]
