"""Round breakdown, curve points, and tables in documents."""

import pytest

from jetspec_sglang.bench import curve, report
from jetspec_sglang.bench import round as rounds
from jetspec_sglang.cli import main

PHASES = {"scheduler": 0.3, "draft": 2.0, "tree": 0.1, "verify": 6.8, "commit": 0.3}


def test_what_the_phases_do_not_hold_is_the_rest():
    result = rounds.breakdown(PHASES, decode_seconds=10.0, rounds=100, tau=2.0)
    assert result.seconds["verify"] == 0.068
    assert result.seconds["rest"] == pytest.approx(0.005)
    assert result.total == pytest.approx(0.1)
    assert result.outside_gemms == pytest.approx(0.12)
    assert [row[0] for row in rounds.table(result)[1:]] == [*rounds.HOLDS, "round"]


def test_a_clock_that_saw_less_than_the_phases_gives_no_negative_part():
    assert rounds.breakdown(PHASES, 9.0, 100, 2.0).seconds["rest"] == 0.0


def test_no_round_is_an_error():
    with pytest.raises(ValueError, match="no round"):
        rounds.breakdown(PHASES, 1.0, 0, 1.0)


def test_curve_difference_is_relative_to_what_was_measured():
    point = curve.Point(16, computed=2.06, measured=2.0, request_rounds=500)
    assert point.difference == pytest.approx(0.03)
    assert curve.table([point], 64)[1] == ["16", "2.060", "2.000", "+3.0%", "500"]


DOCUMENT = "a\n<!-- bench:tree -->\nold\n<!-- /bench:tree -->\nb <!-- bench:serve -->\n"


def test_a_section_is_replaced_and_nothing_else():
    new = report.replace_section(DOCUMENT, "tree", "| t |\n")
    assert new == DOCUMENT.replace("old", "| t |")
    assert report.replace_section(new, "tree", "old") == DOCUMENT


@pytest.mark.parametrize(
    "text",
    [
        DOCUMENT.replace("<!-- /bench:tree -->", ""),
        DOCUMENT + DOCUMENT,
        "<!-- /bench:tree --> <!-- bench:tree -->",
    ],
)
def test_markers_must_be_there_once_and_in_order(text):
    with pytest.raises(ValueError, match="bench:tree"):
        report.replace_section(text, "tree", "x")


def test_write_section_names_the_file(tmp_path):
    file = tmp_path / "doc.md"
    file.write_text("nothing here")
    with pytest.raises(ValueError, match=r"doc\.md: must contain"):
        report.write_section(file, "tree", "x")
    assert file.read_text() == "nothing here"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["serve", "--repeats", "0"], "--repeats 0"),
        (["serve", "--batches", "1", "0"], "--batches 0"),
        (["round", "--max-tokens", "1"], "--max-tokens 1"),
        (["curve", "--budgets", "64"], "--budgets 64"),
    ],
)
def test_sizes_that_cannot_be_measured_are_refused_before_any_server(words, named, capsys):
    assert main(["bench", *words]) == 2
    assert named in capsys.readouterr().err


def test_tree_table_lands_in_its_place(tmp_path, monkeypatch):
    from jetspec_sglang.bench import tree

    monkeypatch.setattr(tree, "run", lambda clock: [])
    file = tmp_path / "doc.md"
    file.write_text(DOCUMENT)
    assert main(["bench", "tree", "--write", str(file)]) == 0
    assert "| batch | B | plain Python | C++ |" in file.read_text()
    assert "sglang" in file.read_text()
