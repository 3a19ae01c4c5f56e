"""The first pages a stranger reads have short sentences, and no text uses phrases of our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / "README.md", ROOT / "docs" / "operate.md", ROOT / "docs" / "tune.md"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 30
HOUSE_PHRASES = re.compile(
    r"\ba request and round|\bin force whole|\bever more (?:slowly|rarely)|\bof late\b"
    r"|\bnodes pay while|\bleaves the decision to be|\bgoes? on where",
    re.IGNORECASE,
)
PACKAGES = ("jetspec_sglang", "controller", "loadtests", "deploy", "dashboards")


def sentences(text: str) -> Iterator[str]:
    """Sentences of a page without code blocks; a cell of a table is text of its own."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=[-|#]|\d+\. )", text):
        for part in block.split("|") if block.lstrip().startswith("|") else [block]:
            plain = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "X", " ".join(part.split())))
            yield from re.split(r"(?<=[.!?:;])\s+", plain)


def words(sentence: str) -> int:
    return len(re.findall(r"[^\W\d_]\w*", sentence))


def test_sentences_are_counted() -> None:
    page = "# One\n\nTwo `a b c` words. Three more words:\n\n| four | five six. Seven |\n"
    assert [words(one) for one in sentences(page) if words(one)] == [1, 3, 3, 1, 2, 1]


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.name)
def test_sentences_of_the_first_pages_are_short(page: Path) -> None:
    assert [one for one in sentences(page.read_text()) if words(one) > MOST_WORDS] == []


def test_no_text_uses_house_phrases() -> None:
    code = [file for name in PACKAGES for file in (ROOT / name).rglob("*.py")]
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in [*PAGES, *code]
        if ".venv" not in file.parts
        for match in HOUSE_PHRASES.finditer(" ".join(file.read_text().split()))
    ]
    assert found == []
