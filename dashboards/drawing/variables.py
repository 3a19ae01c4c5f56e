"""Dashboard variables: their values from Prometheus, and their place in queries and titles.

Contract: `resolve` returns {name: Chosen}. A query variable that matches nothing is a
VariableError that names the variable and its query. `fill` is pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.drawing.prometheus import Prometheus, Span

ALL = "$__all"
SCRAPE_S = 5.0
"""`timeInterval` of the provisioned datasource; Grafana makes $__rate_interval from it."""
_LABEL_VALUES = re.compile(r"label_values\(\s*(?:(?P<selector>.*),)?\s*(?P<label>\w+)\s*\)$", re.S)
_USE = re.compile(r"\$\{(?P<braced>\w+)(?::(?P<format>\w+))?\}|\$(?P<plain>\w+)")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The values of a variable.

    many: it can hold several values, so queries compare it with `=~` and get escaped patterns.
    pattern: the pattern for All in queries, if the variable has one.
    """

    values: list[str]
    many: bool = False
    pattern: str | None = None

    def in_query(self, form: str | None) -> str:
        if form in ("csv", "text", "raw"):
            return ",".join(self.values)
        if self.pattern is not None:
            return self.pattern
        if form == "pipe":
            return "|".join(self.values)
        if not self.many and form != "regex":
            return "".join(self.values[:1])
        # Twice: for the pattern, and for PromQL's string around it.
        escaped = [re.sub(r"([\\.*+?^${}()|\[\]])", r"\\\\\1", value) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def in_title(self) -> str:
        return "All" if self.pattern is not None else " + ".join(self.values)


Values = Mapping[str, Chosen]


class VariableError(Exception):
    """A variable has no value; the message names it and says what to look at."""


def resolve(
    variables: Sequence[Mapping[str, Any]],
    prometheus: Prometheus,
    span: Span,
    chosen: Mapping[str, Sequence[str]],
) -> dict[str, Chosen]:
    """The values of every variable, `chosen` ones first: All means all that Prometheus knows."""
    found: dict[str, Chosen] = {}
    for variable in variables:
        name, kind = variable["name"], variable["type"]
        if kind in ("datasource", "adhoc"):
            found[name] = Chosen([prometheus.url])
        elif kind == "query":
            values = _query(variable, prometheus, span, found)
            found[name] = _choose(variable, values, chosen.get(name))
        else:
            found[name] = Chosen([*(chosen.get(name) or _current(variable))], _many(variable))
    return found


def _query(
    variable: Mapping[str, Any], prometheus: Prometheus, span: Span, found: Values
) -> list[str]:
    definition = variable.get("query") or variable.get("definition") or ""
    query = definition.get("query", "") if isinstance(definition, Mapping) else definition
    query = fill(query, found, span)
    if match := _LABEL_VALUES.match(query.strip()):
        values = prometheus.label_values(match["label"], match["selector"], span)
    else:
        raise VariableError(f"variable {variable['name']}: cannot read the query {query!r}")
    if pattern := variable.get("regex", "").strip("/"):
        matches = [re.search(pattern, value) for value in values]
        values = [(m[1] if m.re.groups else m[0]) for m in matches if m]
    values = sorted(set(values), key=_numbers_first)
    if not values:
        raise VariableError(
            f"variable {variable['name']} matches nothing: {query} has no values in the time range"
        )
    return values


def _choose(variable: Mapping[str, Any], values: list[str], chosen: Sequence[str] | None) -> Chosen:
    name, many = variable["name"], _many(variable)
    if chosen:
        if strangers := [value for value in chosen if value not in values]:
            raise VariableError(
                f"variable {name} has no value {', '.join(strangers)}; there are: "
                f"{', '.join(values)}"
            )
        return Chosen([*chosen], many)
    current = _current(variable)
    if variable.get("includeAll") and (current in ([], [""], [ALL])):
        return Chosen(values, many, variable.get("allValue") or None)
    kept = [value for value in current if value in values]
    return Chosen(kept or values[:1], many)


def _many(variable: Mapping[str, Any]) -> bool:
    return bool(variable.get("multi") or variable.get("includeAll"))


def _current(variable: Mapping[str, Any]) -> list[str]:
    value = (variable.get("current") or {}).get("value")
    if value in (None, "", {}):
        options = variable.get("options") or []
        value = options[0]["value"] if options else variable.get("query", "")
    return [*map(str, value)] if isinstance(value, list) else [str(value)]


def _numbers_first(value: str) -> tuple[int, float, str]:
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value


def fill(text: str, values: Values, span: Span, *, title: bool = False) -> str:
    """A query, or a title, with variables and Grafana's own `$__` ones replaced."""
    rate = max(span.step + SCRAPE_S, 4 * SCRAPE_S)
    built_in = {
        "__interval": f"{span.step:g}s",
        "__interval_ms": f"{span.step * 1000:g}",
        "__rate_interval": f"{rate:g}s",
        "__rate_interval_ms": f"{rate * 1000:g}",
        "__range": f"{span.seconds:.0f}s",
        "__range_s": f"{span.seconds:.0f}",
        "__range_ms": f"{span.seconds * 1000:.0f}",
        "__from": f"{span.start * 1000:.0f}",
        "__to": f"{span.end * 1000:.0f}",
    }

    def replaced(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        if name in built_in:
            return built_in[name]
        if name not in values:
            return match[0]
        return values[name].in_title() if title else values[name].in_query(match["format"])

    return _USE.sub(replaced, text)
