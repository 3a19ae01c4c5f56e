"""What is looked at before and after a run: the server's answers, a key, a Prometheus."""

from __future__ import annotations

import io
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from loadtests import preflight
from loadtests.config import ConfigError
from loadtests.series import Sample, from_prometheus
from tests.unit.loadtests.build import config

MODELS = (200, {"data": [{"id": "a"}, {"id": "b"}]})


def look(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], **values: Any) -> Any:
    keys: list[str] = []

    def get(url: str, key: str) -> tuple[int, Any]:
        keys.append(key)
        return answers.get(url.rpartition(":1")[2], (404, None))

    monkeypatch.setattr(preflight, "_get", get)
    return preflight.look(config(**values), "http://h:1/v1"), keys


def test_the_first_model_and_what_sglang_says(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {
        "version": "0.5.23",
        "api_key": "secret",
        "internal_states": [{"jetspec": {"budget": 8}}],
    }
    facts, _ = look(monkeypatch, {"/v1/models": MODELS, "/server_info": (200, info)})
    assert (facts.model, facts.sglang) == ("a", True)
    assert facts.info == {"version": "0.5.23", "jetspec": {"budget": 8}}, "no secrets"


def test_a_server_that_is_not_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, _ = look(monkeypatch, {"/v1/models": MODELS}, model="b")
    assert (facts.model, facts.sglang, facts.info) == ("b", False, {})


def test_a_server_without_a_list_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, {}, model="m")[0].model == "m"
    with pytest.raises(ConfigError, match=r"lists no model \(404\); name one with --model"):
        look(monkeypatch, {})


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"{status}, the key is missing or wrong"):
        look(monkeypatch, {"/v1/models": (status, None)})


def test_where_the_key_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    file = tmp_path / "key"
    file.write_text("from-file\n")
    assert look(monkeypatch, {"/v1/models": MODELS})[1][0] == "from-environment"
    assert look(monkeypatch, {"/v1/models": MODELS}, api_key_file=str(file))[1][0] == "from-file"
    with pytest.raises(ConfigError, match="--api-key-file /nowhere"):
        preflight.api_key(config(api_key_file="/nowhere"))


@pytest.mark.parametrize("host", ["", "h:1", "ftp://h", "http://"])
def test_what_is_no_url(host: str) -> None:
    with pytest.raises(ConfigError, match="--host"):
        preflight.look(config(), host)


def test_the_budget_from_a_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def urlopen(url: str, timeout: float) -> io.StringIO:
        asked.append(url)
        values = [[1000.0, "16"], [1001.0, "8"]]
        result = [{"metric": {}, "values": values}]
        return io.StringIO(json.dumps({"status": "success", "data": {"result": result}}))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    found = from_prometheus("http://p:9090/", 'instance="h:1"', 1000.0, 1001.0)
    assert found == [Sample(0.0, budget=16.0), Sample(1.0, budget=8.0)]
    assert asked[0].startswith(
        "http://p:9090/api/v1/query_range?query=max%28jetspec_tree_budget%7B"
    )


def test_a_prometheus_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"status": "error", "error": "parse error"})
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.StringIO(body))
    with pytest.raises(ValueError, match="parse error"):
        from_prometheus("http://p:9090", "{", 0.0, 1.0)
