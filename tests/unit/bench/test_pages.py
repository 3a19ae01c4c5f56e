"""Benchmark pages: commands write into sections that exist, main results come from the long tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAIN = ROOT / "docs" / "benchmarks.md"
LONG = MAIN.with_suffix("")
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines]


def section(heading: str) -> list[list[str]]:
    """The tables of a section of the main page."""
    return rows(MAIN.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0])


def written() -> list[tuple[str, str]]:
    """What each `jetspec bench` command of the documentation measures, and the file it writes."""
    found = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for line in "\n".join(BLOCK.findall(page.read_text())).replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:2] == ["jetspec", "bench"] and "--write" in words:
                found.append((words[2], words[words.index("--write") + 1]))
    return sorted({*found})


@pytest.mark.parametrize(("kind", "file"), written())
def test_a_command_writes_into_a_section_that_exists(kind: str, file: str) -> None:
    text = (ROOT / file).read_text()
    for marker in (f"<!-- bench:{kind} -->", f"<!-- /bench:{kind} -->"):
        assert text.count(marker) == 1


def test_policies_are_written_into_sections_that_exist() -> None:
    file = re.search(r"^A=.*--write ([^ \"]+)", MAIN.read_text(), re.MULTILINE)[1]
    for device in ("table11", "roofline"):
        assert f"<!-- bench:policies-{device} -->" in (ROOT / file).read_text()


def test_a_section_is_kept_once() -> None:
    pages = [*(ROOT / "docs").rglob("*.md")]
    names = [
        name for page in pages for name in re.findall(r"<!-- (bench:\S+) -->", page.read_text())
    ]
    assert len(names) == len({*names}) > 10


def test_main_results_of_methods() -> None:
    measured = {(row[0], row[1] or "1"): row for row in rows((LONG / "methods.md").read_text())}
    shown = section("Methods")[1:]
    assert len(shown) >= 5
    for name, budget, *cells in shown:
        row = measured[name, budget]
        assert cells == [f"{row[i]}, {row[i + 2]}" for i in (2, 5, 8)]


def test_main_results_of_conditioning() -> None:
    table = [row for row in rows((LONG / "conditioning.md").read_text()) if len(row) == 7]
    measured = {(row[0], row[1]): row[3] for row in table}
    shown = section("What conditioning on the path is worth")[1:]
    assert len(shown) >= 3
    for name, *cells, _ in shown:
        assert cells == [measured[data, name] for data in ("gsm8k", "mbpp", "chat")]


def test_main_results_of_attention() -> None:
    table = rows((LONG / "attention.md").read_text())[1:]
    measured = {(row[0], row[1], row[2]): row[-1] for row in table}
    shown = section("Attention on the host")[1:]
    assert len(shown) == 6
    for kind, number, *cells in shown:
        assert cells == [measured[kind, number, prefix] for prefix in ("128", "512", "2048")]


@pytest.mark.parametrize("device", ["table11", "roofline"])
def test_main_results_of_policies(device: str) -> None:
    text = (LONG / "policies.md").read_text().split(f"<!-- bench:policies-{device} -->")[1]
    table = rows(text.split("<!-- /bench")[0])
    measured: dict[str, list[str]] = {}
    for row in table:
        if len(row) == 9 and row[1] not in ("policy", "oracle"):
            measured.setdefault(row[0], []).append(row[7])
    page = MAIN.read_text()
    shown = rows(page.split(f"Regret on `{device}`")[1].split("\n\n")[1])[1:]
    assert {name: cells for name, *cells in shown} == measured
    goals = [row[1] for row in table if len(row) == 3][1:]
    assert len(goals) == 3
    assert all(f"| {goal} |" in page for goal in goals)
