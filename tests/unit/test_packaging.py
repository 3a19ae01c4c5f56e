"""The wheels hold every file that the code reads, not only its Python."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("project", [".", "controller"])
def test_package_data_names_every_file_that_is_not_python(project):
    folder = ROOT / project
    data = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, patterns in data["package-data"].items():
        packed = {file for pattern in patterns for file in (folder / package).glob(pattern)}
        listed = subprocess.run(
            ["git", "ls-files", package], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.split()
        others = {folder / name for name in listed if not name.endswith(".py")}
        assert others
        assert others <= packed
