"""The committed dashboards are what the code writes, and a wrong name stops it."""

from __future__ import annotations

import pytest

from dashboards import generate, promql, tps_rows
from dashboards.promql import UnknownSeriesError
from jetspec_sglang.metric_list import ACCEPTED_NODE_BUDGET, RANK_BUCKETS, ROUNDS


def test_regenerating_changes_nothing() -> None:
    committed = {path.name: path.read_text() for path in generate.FOLDER.glob("*.json")}
    assert generate.texts() == committed


def test_check_names_files_that_differ(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    (tmp_path / "jetspec-engine.json").write_text("{}")
    (tmp_path / "old.json").write_text("{}")
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "jetspec-engine.json" in said
    assert "old.json" in said
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: promql.controller("budget_now"),
        lambda: promql.controller("apply_seconds"),
        lambda: promql.controller("paused", "bucket"),
        lambda: promql.engine(ACCEPTED_NODE_BUDGET),
        lambda: promql.engine(ROUNDS, "bucket"),
        lambda: promql.recorded("dp_rank:sglang_num_running_requests:max"),
        lambda: promql.engine(ROUNDS).select(phase="=draft"),
        lambda: promql.recorded("dp_rank:sglang_num_running_reqs:max").select(budget="=1"),
    ],
)
def test_a_series_or_label_that_nothing_emits_is_an_error(make) -> None:
    with pytest.raises(UnknownSeriesError):
        make()


def test_budgets_of_at_least_an_edge_are_matched_by_value() -> None:
    import re

    for edge in (1, 9, 10, *RANK_BUCKETS):
        pattern = re.compile(tps_rows.at_least(edge))
        matched = {n for n in range(1, 4097) if pattern.fullmatch(str(n))}
        assert matched == set(range(edge, 4097))
