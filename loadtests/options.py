"""Command line options made from `LoadConfig`. No I/O."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, get_args

from loadtests.config import LoadConfig, load_config

GROUP = "Load test options"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add one option for each field, in a group of their own. Values are checked later."""
    group = parser.add_argument_group(GROUP, "What is sent, when, and how the result is judged.")
    for name, field in LoadConfig.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        text = (field.description or "").replace("%", "%%")
        if field.annotation is bool:
            group.add_argument(flag, action="store_true", help=text)
            continue
        default = "" if field.default in ("", ()) else f" ({field.default})"
        choices = [one for one in get_args(field.annotation) if isinstance(one, str)]
        if choices:
            text = f"{text}. One of: {', '.join(choices)}"
        group.add_argument(flag, default=None, metavar=_metavar(name), help=text + default)


def config_of(values: Mapping[str, Any]) -> LoadConfig:
    """The configuration that parsed options ask for. ConfigError for a wrong one."""
    given = {name: values.get(name) for name in LoadConfig.model_fields}
    return load_config({name: value for name, value in given.items() if value not in (None, "")})


def _metavar(name: str) -> str:
    if name in ("trace", "prompts", "api_key_file"):
        return "FILE"
    if name in ("steps", "slo", "threshold"):
        return "LIST"
    return "DIR" if name == "report_dir" else name.rpartition("_")[2].upper()
