"""The preview command: what it draws, and what it says when it cannot."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from PIL import Image

from dashboards import preview
from dashboards.drawing.dashboard import load
from dashboards.drawing.panels import DRAW
from dashboards.drawing.transformations import KNOWN

FILES = sorted(preview.DASHBOARDS.glob("*.json"))


def panel(kind: str, y: int, **more: object) -> dict:
    grid = {"x": 0, "y": y, "w": 24, "h": 6}
    targets = [{"expr": f"metric_{y}", "refId": "A", "legendFormat": "{{job}}"}]
    return {"type": kind, "title": f"panel {kind}", "gridPos": grid, "targets": targets, **more}


def board(panels: list[dict], **more: object) -> dict:
    return {"uid": "test", "title": "Test", "panels": panels} | more


@pytest.fixture
def drawn(prometheus, tmp_path, monkeypatch, capsys):
    """Draws a dashboard; gives (exit status, stdout, stderr, picture)."""
    monkeypatch.setattr(preview, "DASHBOARDS", tmp_path)

    def run(content: dict, *words: str):
        (tmp_path / "test.json").write_text(json.dumps(content))
        out = tmp_path / "out"
        status = preview.main(
            ["--prometheus", prometheus.url, "--out", str(out), "--from", "now-5m", *words]
        )
        said = capsys.readouterr()
        return status, said.out, said.err, out / "test.png"

    return run


def inked(picture: Path) -> int:
    """Pixels that are neither page, panel nor border: what was drawn."""
    counts = Image.open(picture).convert("L").histogram()
    return sum(counts[:200])


@pytest.mark.parametrize("kind", sorted(DRAW))
def test_every_panel_type_is_drawn(drawn, kind):
    more: dict[str, object] = {"options": {"content": "# Words\nabout it"}}
    if kind in ("table", "barchart", "xychart"):
        more = {"options": {"xField": "job"}}
    content = panel(kind, 0, **more)
    if kind in ("table", "barchart"):
        content["targets"][0] |= {"format": "table", "instant": True}
    if kind == "xychart":
        content["targets"][0] |= {"format": "table", "instant": True}
        conversion = {"targetField": "le", "destinationType": "number"}
        content["transformations"] = [
            {"id": "convertFieldType", "options": {"conversions": [conversion]}}
        ]
    status, out, err, picture = drawn(board([content]))
    assert (status, err) == (0, "")
    assert "without data" not in out
    _, _, _, empty = drawn(board([]))
    blank = inked(empty)
    drawn(board([content]))
    assert inked(picture) > blank + 50


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_committed_dashboards_use_nothing_that_is_not_drawn(file):
    dashboard = load(file)
    assert {p.type for p in dashboard.panels} <= {*DRAW, "row"}
    used = {one["id"] for p in dashboard.panels for one in p.transformations}
    assert used <= {*KNOWN}


def test_a_panel_without_data_says_so(drawn, prometheus):
    prometheus.answer = lambda expression: [] if expression == "metric_6" else [({}, 1.0)]
    status, out, _, _ = drawn(board([panel("stat", 0), panel("timeseries", 6)]))
    assert status == 0
    assert "2 panels, without data: panel timeseries" in out


@pytest.mark.parametrize("value", [float("nan")])
def test_nan_alone_is_no_data(drawn, prometheus, value):
    prometheus.answer = lambda expression: [({}, value)]
    assert "without data: panel stat" in drawn(board([panel("stat", 0)]))[1]


def test_prometheus_that_is_down(drawn, prometheus):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    status, _, err, _ = drawn(board([panel("stat", 0)]), "--prometheus", url)
    assert status == 1
    assert err.splitlines() == [err.strip()]
    assert f"no Prometheus answers at {url}" in err


def test_a_password_is_not_repeated(drawn, prometheus):
    prometheus.refuse = "no"
    url = prometheus.url.replace("http://", "http://user:secret@")
    _, _, err, _ = drawn(board([panel("stat", 0)]), "--prometheus", url)
    assert prometheus.url in err
    assert "secret" not in err


def test_another_server_at_the_url(drawn, prometheus):
    prometheus.body = b"<html>"
    status, _, err, _ = drawn(board([panel("stat", 0)]))
    assert status == 1
    assert "answers 404 without JSON: this is not a Prometheus" in err


def test_a_query_that_prometheus_refuses(drawn, prometheus):
    prometheus.refuse = "parse error:\n bad"
    status, _, err, _ = drawn(board([panel("stat", 0)]))
    assert status == 1
    assert "refuses 'metric_0': parse error: bad" in err


QUERY = {"type": "query", "name": "model", "query": {"query": "label_values(info, model_name)"}}


def test_a_variable_that_matches_nothing(drawn):
    status, _, err, _ = drawn(board([panel("stat", 0)], templating={"list": [QUERY]}))
    assert status == 1
    assert "test: variable model matches nothing: label_values(info, model_name)" in err


def test_a_value_that_a_variable_does_not_have(drawn, prometheus):
    prometheus.labels["model_name"] = ["a", "b"]
    content = board([panel("stat", 0)], templating={"list": [QUERY]})
    status, _, err, _ = drawn(content, "--var", "model=c")
    assert status == 1
    assert "variable model has no value c; there are: a, b" in err
    status, _, err, _ = drawn(content, "--var", "modell=a")
    assert status == 2
    assert "no variable modell; there are: model" in err


def test_a_variable_of_one_dashboard_is_no_error_for_the_others(drawn, prometheus, tmp_path):
    prometheus.labels["model_name"] = ["a", "b"]
    (tmp_path / "other.json").write_text(json.dumps(board([panel("stat", 0)], uid="other")))
    content = board([panel("stat", 0)], templating={"list": [QUERY]})
    status, out, err, _ = drawn(content, "--var", "model=a")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--prometheus", "127.0.0.1:9090"], "'127.0.0.1:9090' is not a URL"),
        (["--from", "yesterday"], "'yesterday' is not a time"),
        (["--from", "nan"], "'nan' is not a time"),
        (["--to", "inf"], "'inf' is not a time"),
        (["--from", "now", "--to", "now-5m"], "--from must lie before --to"),
        (["--width", "1"], "--width is 1"),
        (["--rows", "0"], "--rows is 0"),
        (["--var", "model"], "--var 'model'"),
        (["--dashboard", "other"], "no dashboard other; there are: test"),
    ],
)
def test_bad_flags(drawn, words, named):
    status, _, err, _ = drawn(board([panel("stat", 0)]), *words)
    assert status in (1, 2)
    assert len(err.splitlines()) == 1
    assert named in err


def test_a_folder_that_cannot_be_written(drawn, tmp_path):
    (tmp_path / "file").touch()
    status, _, err, _ = drawn(board([panel("stat", 0)]), "--out", str(tmp_path / "file" / "in"))
    assert status == 1
    assert "cannot write in" in err


def test_an_unknown_transformation_is_named(drawn):
    content = board([panel("table", 0, transformations=[{"id": "histogram"}])])
    status, _, err, _ = drawn(content)
    assert status == 1
    assert "test: transformation histogram is not drawn here" in err


def test_rows_cut_the_picture(drawn):
    content = board([panel("stat", 0), panel("stat", 6), panel("stat", 12)])
    _, _, _, picture = drawn(content)
    whole = Image.open(picture).size
    _, out, _, _ = drawn(content, "--rows", "12", "--width", "700")
    assert "2 panels" in out
    width, height = Image.open(picture).size
    assert (width, height) == (700, whole[1] - 6 * 38)


def test_times():
    assert preview.moment("now-15m", 1000.0) == 100.0
    assert preview.moment("now", 1000.0) == 1000.0
    assert preview.moment("1767225600", 0.0) == 1767225600
    assert preview.span(0.0, 60.0).step == 5.0
    assert preview.span(0.0, 3600.0).step == 15.0
