"""Tokens per second of plain decoding, chains and trees, in one run on one machine.

Contract: `schedule` and `summarise` are pure; `measure_all` talks to the servers. Inside a repeat
the configurations rotate, so that a change of the machine's speed affects all of them equally.
Ratios are computed within a repeat, against plain decoding of the same dtype and batch.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jetspec_sglang.client.load import LoadResult, flush_cache, run_load, set_budget, warm_up
from jetspec_sglang.client.measured import Fleet, Launch


@dataclass(frozen=True, slots=True)
class Config:
    """A server at a budget; budget 0 is a server without speculation."""

    launch: Launch
    budget: int

    @property
    def name(self) -> str:
        return self.launch.name + (f" B={self.budget}" if self.budget else "")


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: a configuration at a batch size, in a repeat."""

    repeat: int
    config: Config
    batch: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A cell and what it measured."""

    cell: Cell
    load: LoadResult

    def as_dict(self) -> dict[str, Any]:
        launch = self.cell.config.launch
        return {
            "repeat": self.cell.repeat,
            "dtype": launch.dtype,
            "rule": launch.rule,
            "budget": self.cell.config.budget,
            "batch": self.cell.batch,
            **asdict(self.load),
        }


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of some repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Result:
    """A configuration at a batch size over all repeats; `ratio` is None without a plain run."""

    speed: Spread
    tau: float
    ratio: Spread | None


def schedule(
    configs: Sequence[Config], batches: Sequence[int], repeats: int, *, together: bool
) -> list[Cell]:
    """Every cell in the order of measurement.

    With servers up `together`, configurations alternate at each batch size; otherwise a repeat
    visits each server once, so that it starts once a repeat. The starting point rotates.
    """
    cells = []
    for repeat in range(repeats):
        if together:
            for turn, batch in enumerate(batches):
                cells += [Cell(repeat, c, batch) for c in _rotated(configs, repeat + turn)]
            continue
        for launch in _rotated(list(dict.fromkeys(c.launch for c in configs)), repeat):
            own = [config for config in configs if config.launch == launch]
            for turn, batch in enumerate(batches):
                cells += [Cell(repeat, c, batch) for c in _rotated(own, repeat + turn)]
    return cells


def _rotated(items: Sequence[Any], by: int) -> list[Any]:
    at = by % len(items)
    return [*items[at:], *items[:at]]


def measure_all(
    servers: Fleet,
    cells: Sequence[Cell],
    prompts: Callable[[int], Sequence[str]],
    max_tokens: int,
    progress: Callable[[Cell], None],
) -> Iterator[Sample]:
    """Measure the cells in order; `prompts(batch)` are the requests of a batch size."""
    for cell in cells:
        progress(cell)
        server, _ = servers.get(cell.config.launch)
        if cell.config.budget:
            set_budget(server, cell.config.budget)
        asked = prompts(cell.batch)
        warm_up(server, asked, cell.batch)
        load = run_load(server, asked, cell.batch, max_tokens)
        flush_cache(server)
        yield Sample(cell, load)


def summarise(samples: Sequence[Sample]) -> dict[tuple[Config, int], Result]:
    """Results by (configuration, batch), in the order of first measurement."""
    groups: dict[tuple[Config, int], list[Sample]] = {}
    plain: dict[tuple[str, int, int], float] = {}
    for sample in samples:
        cell = sample.cell
        groups.setdefault((cell.config, cell.batch), []).append(sample)
        if cell.config.launch.rule is None:
            plain[cell.config.launch.dtype, cell.batch, cell.repeat] = sample.load.speed
    results = {}
    for (config, batch), group in groups.items():
        ratios = [
            sample.load.speed / base
            for sample in group
            if (base := plain.get((config.launch.dtype, batch, sample.cell.repeat)))
        ]
        results[config, batch] = Result(
            Spread.of([sample.load.speed for sample in group]),
            statistics.median(sample.load.tau for sample in group),
            Spread.of(ratios) if ratios else None,
        )
    return results


def table(results: dict[tuple[Config, int], Result]) -> list[list[str]]:
    """Rows for `report.markdown`, the header first: one row per configuration, one column per
    batch."""
    configs = sorted({config for config, _ in results}, key=_order)
    batches = sorted({batch for _, batch in results})
    rows = [["decoding", "dtype", "B", "τ", *(f"batch {batch}" for batch in batches)]]
    for config in configs:
        found = {batch: results[config, batch] for batch in batches if (config, batch) in results}
        taus = [result.tau for result in found.values()]
        rows.append(
            [
                config.launch.name.partition("-")[0],
                config.launch.dtype,
                str(config.budget) if config.budget else "",
                _range(taus) if config.budget else "",
                *(_cell(found.get(batch)) for batch in batches),
            ]
        )
    return rows


def _order(config: Config) -> tuple[str, int, int]:
    kind = config.launch.name.partition("-")[0]
    return config.launch.dtype, ("plain", "chain", "tree").index(kind), config.budget


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low}-{high}"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    speed = f"{result.speed.median:.1f} ({result.speed.low:.1f}-{result.speed.high:.1f})"
    return speed if result.ratio is None else f"{speed} {result.ratio.median:.2f}x"
