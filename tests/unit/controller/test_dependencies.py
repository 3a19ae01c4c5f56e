"""The controller imports what it declares and nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[3] / "controller"
MODULES = {"pyyaml": "yaml"}
"""Distributions whose module has another name."""


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["kubernetes"]]
    names = (re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in wanted)
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


def imported() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "jetspec_controller").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"jetspec_controller"}


def test_every_imported_package_is_declared() -> None:
    assert imported() - declared() == set()


def test_every_declared_package_is_imported() -> None:
    assert declared() - imported() == {"plotly"}, "only its files are used"


def test_the_wheel_holds_the_service_without_the_simulator() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    packages = find_packages(str(ROOT), include=found["find"]["include"])
    assert "jetspec_controller.core" in packages
    assert [name for name in packages if "simulator" in name] == []
