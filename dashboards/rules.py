"""The recording and alerting rules as the dashboards and the tests read them. Reads files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "prometheus" / "rules"
RECORDING = FOLDER / "jetspec.recording.yml"
ALERTS = FOLDER / "jetspec.alerts.yml"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording rule."""

    record: str
    expr: str
    group: str


@cache
def recordings() -> dict[str, Recording]:
    """Every recording rule by the name it records."""
    return {
        rule["record"]: Recording(rule["record"], rule["expr"], group["name"])
        for group in yaml.safe_load(RECORDING.read_text())["groups"]
        for rule in group["rules"]
    }
