"""Queries of the panels, built from metrics that exist. No I/O but reading the rules.

A `Series` can only be made from the lists of the code that emits it, or from a recording rule;
anything else raises `UnknownSeriesError` while the dashboards are generated. Every query keeps
the same order: take the rate of each series, remove copies of one number with `max`, then sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from jetspec_controller import metric_list as controller_list

from dashboards.rules import recordings
from dashboards.sglang_series import METRICS as SGLANG
from jetspec_sglang.metric_list import Metric

REPLICAS = ("replica", "prometheus", "prometheus_replica", "receive_replica")
"""Labels that distinguish the copies of a replicated Prometheus."""

RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of ranks that repeat the numbers of their data-parallel rank; recorded series have none."""

RATE = "$__rate_interval"
RANGE = "$__range"

CONTROLLER_LABELS = {"job": "$job", "instance": "$instance"}
ENGINE_LABELS = {**CONTROLLER_LABELS, "model_name": "$model"}
BY_LABEL = {"budget": "$budget", "target": "$target"}


class UnknownSeriesError(Exception):
    """A query names a metric or a label that nothing emits."""


@dataclass(frozen=True, slots=True)
class Series:
    """One name in Prometheus; `labels` beyond those of its server, `scope` what variables select
    it by, `copies` the labels that tell copies of one number apart."""

    name: str
    labels: frozenset[str]
    scope: dict[str, str]
    copies: tuple[str, ...] = REPLICAS

    def select(self, **matchers: str) -> str:
        """The selector with the dashboard's variables. A matcher's first character is its
        operator: `phase="=draft"`, `budget="!1"` (unequal), `le="~2|4"` (regular expression)."""
        unknown = set(matchers) - self.labels
        if unknown:
            raise UnknownSeriesError(
                f"{self.name} has no label {', '.join(sorted(unknown))};"
                f" it has {', '.join(sorted(self.labels)) or 'none of its own'}"
            )
        wanted = [f'{label}=~"{value}"' for label, value in self.scope.items()]
        wanted += [
            f'{label}=~"{value}"'
            for label, value in BY_LABEL.items()
            if label in self.labels and label not in matchers
        ]
        for label, value in matchers.items():
            operator = {"=": "=", "~": "=~", "!": "!="}[value[0]]
            wanted.append(f'{label}{operator}"{value[1:]}"')
        return f"{self.name}{{{', '.join(wanted)}}}"


def engine(metric: Metric, part: str = "") -> Series:
    """A series of the engine; `part` is `bucket`, `sum` or `count` of a histogram."""
    labels = set(metric.labels)
    if (metric.kind == "histogram") != bool(part):
        raise UnknownSeriesError(f"{metric.name} is a {metric.kind}, asked for part {part!r}")
    if part == "bucket":
        labels.add("le")
    name = metric.name + (part and f"_{part}")
    return Series(name, frozenset(labels), ENGINE_LABELS, RANKS + REPLICAS)


def controller(name: str, part: str = "", *, any_job: bool = False) -> Series:
    """A series of the controller, named without its prefix; `any_job` where the dashboard's
    variables `job` and `instance` are those of the servers."""
    found = [metric for metric in controller_list.METRICS if metric.name == name]
    if not found:
        raise UnknownSeriesError(f"the controller exports no {controller_list.PREFIX}_{name}")
    labels = set(found[0].labels)
    if (found[0].kind == "histogram") != bool(part):
        raise UnknownSeriesError(f"{name} is a {found[0].kind}, asked for part {part!r}")
    if part == "bucket":
        labels.add("le")
    exported = found[0].exported + (part and f"_{part}")
    return Series(exported, frozenset(labels), {} if any_job else CONTROLLER_LABELS)


def recorded(name: str) -> Series:
    """A recorded series; its own labels are those that its level and its source name."""
    if name not in recordings():
        raise UnknownSeriesError(f"no recording rule makes {name}")
    level, metric, _ = name.split(":")
    labels: set[str] = {
        part for part in ("budget", "batch", "phase", "le") if part in level.split("_")
    }
    for source in SGLANG:
        if metric.removesuffix("_bucket") == f"sglang_{source.name}":
            labels.update(source.labels)
    return Series(name, frozenset(labels), ENGINE_LABELS)


def once(series: Series, expr: str) -> str:
    """Each number of an expression over one series once."""
    return f"max without ({', '.join(series.copies)}) ({expr})"


def value(series: Series, **matchers: str) -> str:
    """A gauge, each number once."""
    return once(series, series.select(**matchers))


def rate(series: Series, window: str = RATE, **matchers: str) -> str:
    """Increase a second, each number once."""
    return once(series, f"rate({series.select(**matchers)}[{window}])")


def total(expr: str, *by: str) -> str:
    """Sum, all together or by labels."""
    return f"sum by ({', '.join(by)}) ({expr})" if by else f"sum({expr})"


def largest(expr: str, *by: str) -> str:
    return f"max by ({', '.join(by)}) ({expr})" if by else f"max({expr})"


def ratio(numerator: str, denominator: str) -> str:
    """Numerator / denominator where the denominator is above 0, nothing elsewhere."""
    return f"{numerator} / ({denominator} > 0)"


def share(expr: str, by: str) -> str:
    """Each part's share of the whole, by one label."""
    return f"{total(expr, by)} / ignoring ({by}) group_left () ({total(expr)} > 0)"


def quantile(q: float, buckets: Series, *by: str, window: str = RATE) -> str:
    """A percentile over all selected servers together, never a mean of percentiles; nothing (not
    NaN) while nothing was observed."""
    return f"histogram_quantile({q}, {total(rate(buckets, window), 'le', *by)}) >= 0"


def events(series: Series, *by: str, **matchers: str) -> str:
    """Above 0 where a counter rose; also where it first appears, which no rate sees."""
    selected = series.select(**matchers)
    rose = f"increase({selected}[{RATE}]) > 0"
    appeared = f"({selected} <= 3 unless {selected} offset {RATE})"
    return total(once(series, f"{rose} or {appeared}"), *by)
