"""The operator's pages name every code, metric, event and setting there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from jetspec_controller.actuators import Outcome
from jetspec_controller.audit import Event
from jetspec_controller.core import Clamp, Reason
from jetspec_controller.metric_list import METRICS
from jetspec_controller.settings import Settings, load
from pydantic import BaseModel

DOCS = Path(__file__).parents[3] / "docs"
OPERATE = (DOCS / "operate.md").read_text()
CONTROLLER = (DOCS / "controller.md").read_text()


@pytest.mark.parametrize("codes", [Reason, Outcome, Event, Clamp])
def test_every_code_is_explained(codes) -> None:
    assert [code for code in codes if f"`{code}`" not in OPERATE] == []


def test_no_reason_is_explained_that_is_none() -> None:
    section = OPERATE.split("## Reasons")[1].split("### Limits")[0]
    named = {
        word
        for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", row)
    }
    assert named == set(Reason)


def test_every_metric_is_named() -> None:
    assert [metric.name for metric in METRICS if f"`{metric.name}" not in OPERATE] == []


def keys(model: type[BaseModel]) -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found.add(name)
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel) and name != "policy":
                found |= keys(part)
    return found


def test_every_setting_is_named() -> None:
    missing = {name for name in keys(Settings) if not re.search(rf"\b{name}\b", CONTROLLER)}
    assert missing <= {"kubeconfig", "refresh_s", "scheme", "env", "file"}


def test_the_example_configuration_is_valid(tmp_path: Path) -> None:
    example = CONTROLLER.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "controller.yaml"
    path.write_text(example)
    settings = load(path)
    assert len(settings.targets) == 2
    assert set(yaml.safe_load(example)) == set(Settings.model_fields)
