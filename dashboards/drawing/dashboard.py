"""`Dashboard` and `Panel`: the parts of a dashboard's JSON that are drawn. Pure except `load`.

Panels of collapsed rows are drawn too, below their row, as if it were open.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its JSON, and its place on the grid of 24 columns."""

    json: Mapping[str, Any]
    x: int
    y: int
    width: int
    height: int

    @property
    def type(self) -> str:
        kind: str = self.json["type"]
        return kind

    @property
    def title(self) -> str:
        return self.json.get("title") or ""

    @property
    def options(self) -> Mapping[str, Any]:
        return self.json.get("options") or {}

    @property
    def targets(self) -> list[Mapping[str, Any]]:
        """Queries that are not hidden."""
        return [target for target in self.json.get("targets") or [] if not target.get("hide")]

    @property
    def transformations(self) -> list[Mapping[str, Any]]:
        return self.json.get("transformations") or []


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    json: Mapping[str, Any]
    panels: list[Panel]

    @property
    def variables(self) -> list[Mapping[str, Any]]:
        return (self.json.get("templating") or {}).get("list") or []

    @property
    def annotations(self) -> list[Mapping[str, Any]]:
        """Queries of annotations that are switched on and ask Prometheus."""
        listed = (self.json.get("annotations") or {}).get("list") or []
        return [one for one in listed if one.get("expr") and one.get("enable", True)]

    def cut(self, rows: int) -> "Dashboard":
        """The panels that end within the first rows of the grid."""
        kept = [panel for panel in self.panels if panel.y + panel.height <= rows]
        return replace(self, panels=kept)

    @property
    def rows(self) -> int:
        return max((panel.y + panel.height for panel in self.panels), default=0)


def load(file: Path) -> Dashboard:
    content = json.loads(file.read_text())
    return Dashboard(content["uid"], content["title"], content, [*_panels(content["panels"])])


def _panels(listed: list[Mapping[str, Any]]) -> Iterator[Panel]:
    shift = 0
    for one in listed:
        grid = one["gridPos"]
        yield Panel(one, grid["x"], grid["y"] + shift, grid["w"], grid["h"])
        if hidden := one.get("panels"):
            inner = [*_panels(hidden)]
            yield from (
                Panel(panel.json, panel.x, panel.y + shift, panel.width, panel.height)
                for panel in inner
            )
            shift += max(panel.y + panel.height for panel in inner) - grid["y"] - grid["h"]
