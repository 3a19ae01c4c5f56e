"""`FieldConfig`: how a field is shown, from a panel's defaults and the overrides that match. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.drawing import colors, units
from dashboards.drawing.dashboard import Panel
from dashboards.drawing.frames import Field, Frame, Value, as_number


@dataclass(frozen=True, slots=True)
class FieldConfig:
    """Merged settings of one field: `values` as in `fieldConfig.defaults`, dotted keys undone."""

    values: Mapping[str, Any]

    @property
    def unit(self) -> str | None:
        return self.values.get("unit")

    @property
    def custom(self) -> Mapping[str, Any]:
        return self.values.get("custom") or {}

    @property
    def hidden(self) -> bool:
        """Whether it is left out of the picture (not of tooltips and legends alone)."""
        return bool((self.custom.get("hideFrom") or {}).get("viz"))

    def name(self, field: Field) -> str:
        given = self.values.get("displayName")
        if not given:
            return field.display
        name = re.sub(
            r"\$\{__field\.labels\.(\w+)\}", lambda match: field.labels.get(match[1], ""), given
        )
        return name.replace("${__field.name}", field.display)

    def text(self, value: Value) -> str:
        """The value as text: a mapping's, else the number in its unit."""
        mapped = self._mapped(value)
        if mapped is not None and mapped.get("text"):
            text: str = mapped["text"]
            return text
        if isinstance(value, str):
            return value
        return units.text(value, self.unit, self.values.get("decimals"))

    def color(self, number: int) -> str:
        """The colour of the panel's n-th series."""
        color = self.values.get("color") or {}
        if color.get("mode") in ("fixed", "shades") and color.get("fixedColor"):
            return colors.named(color["fixedColor"])
        return colors.of_series(number)

    def value_color(self, value: Value, number: int = 0) -> str:
        """The colour of a value: a mapping's, a threshold's, or the series'."""
        mapped = self._mapped(value)
        if mapped is not None and mapped.get("color"):
            return colors.named(mapped["color"])
        if (self.values.get("color") or {}).get("mode", "thresholds") == "thresholds":
            return self.threshold_color(as_number(value))
        return self.color(number)

    def threshold_color(self, number: float) -> str:
        color = "green"
        for step in self.steps:
            if step.get("value") is None or number >= step["value"]:
                color = step["color"]
        return colors.named(color)

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        return (self.values.get("thresholds") or {}).get("steps") or []

    def _mapped(self, value: Value) -> Mapping[str, Any] | None:
        for mapping in self.values.get("mappings") or []:
            options = mapping["options"]
            if mapping["type"] == "value":
                number = as_number(value)
                keys = {str(value), f"{number:g}"}
                found = next((options[key] for key in options if key in keys), None)
            elif mapping["type"] == "range":
                low, high = options.get("from"), options.get("to")
                number = as_number(value)
                inside = (low is None or number >= low) and (high is None or number <= high)
                found = options["result"] if inside else None
            elif mapping["type"] == "regex":
                found = (
                    options["result"]
                    if re.search(options["pattern"].strip("/"), str(value))
                    else None
                )
            else:
                empty = value is None or as_number(value) != as_number(value)
                found = options["result"] if empty and "null" in options["match"] else None
            if found is not None:
                shown: Mapping[str, Any] = found
                return shown
        return None


def config(panel: Panel, frame: Frame, field: Field) -> FieldConfig:
    """The panel's defaults with every override that matches the field."""
    described = panel.json.get("fieldConfig") or {}
    merged = dict(described.get("defaults") or {})
    merged["custom"] = dict(merged.get("custom") or {})
    for override in described.get("overrides") or []:
        if _matches(override["matcher"], frame, field):
            for one in override["properties"]:
                place, dot, key = one["id"].partition(".")
                if dot and place == "custom":
                    merged["custom"][key] = one.get("value")
                else:
                    merged[one["id"]] = one.get("value")
    return FieldConfig(merged)


def _matches(matcher: Mapping[str, Any], frame: Frame, field: Field) -> bool:
    kind, wanted = matcher["id"], matcher.get("options")
    if kind == "byName":
        return wanted in (field.display, field.name)
    if kind == "byRegexp":
        return bool(re.search(str(wanted).strip("/"), field.display))
    if kind == "byFrameRefID":
        return frame.ref == wanted
    if kind == "byType":
        return field.kind == wanted
    if kind == "byNames":
        return field.display in (wanted or {}).get("names", [])
    return False
