"""JSON schemas of our pydantic models as the chart's values.schema.json holds them. No I/O."""

from __future__ import annotations

from typing import Any


def plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Only what a value may be: no titles, texts or defaults; references replaced by what they name;
    an optional value is left out rather than null."""
    return _plain(schema, schema.get("$defs", {}))


def _plain(schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return _plain(named[schema["$ref"].rpartition("/")[2]], named)
    if "anyOf" in schema:
        (schema,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
        return _plain(schema, named)
    kept = {k: v for k, v in schema.items() if k not in DROPPED}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _plain(kept[key], named)
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: _plain(value, named) for name, value in kept[key].items()}
    return kept


DROPPED = {"$defs", "title", "description", "default", "format"}
