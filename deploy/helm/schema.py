"""Keeps the chart's values.schema.json in step with the settings of engine and controller.

`python deploy/helm/schema.py` writes the policy's and the engine's settings into its `$defs`; the
rest of the schema is written by hand. I/O: that file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jetspec_controller.core import PolicyConfig

from jetspec_sglang.settings import Settings

SCHEMA = Path(__file__).parent / "jetspec" / "values.schema.json"
MODELS = {"policy": PolicyConfig, "settings": Settings}
WIDTH = 100
DROPPED = {"$defs", "title", "description", "default", "format"}


def written() -> str:
    """The file as it should be."""
    schema = json.loads(SCHEMA.read_text())
    for name, model in MODELS.items():
        content = model.model_json_schema()
        schema["$defs"][name] = plain(content, content.get("$defs", {}))
    return laid_out(schema) + "\n"


def plain(schema: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """What a value may be, without texts and defaults; an optional value is absent, never null."""
    if "$ref" in schema:
        return plain(named[schema["$ref"].rpartition("/")[2]], named)
    if "anyOf" in schema:
        (present,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
        return plain(present, named)
    kept = {key: value for key, value in schema.items() if key not in DROPPED}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = plain(kept[key], named)
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: plain(value, named) for name, value in kept[key].items()}
    return kept


def laid_out(value: Any, indent: int = 0) -> str:
    """JSON with one line for everything that fits on one."""
    flat = json.dumps(value)
    if len(flat) + indent < WIDTH - 4 or not isinstance(value, dict):
        return flat
    pad = " " * (indent + 2)
    lines = (f"{pad}{json.dumps(k)}: {laid_out(v, indent + 2)}" for k, v in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"


if __name__ == "__main__":
    SCHEMA.write_text(written())
