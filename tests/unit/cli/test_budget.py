"""`jetspec budget` against a fake server: values, refusals, keys, and what can go wrong."""

import json

import pytest

from jetspec_sglang import cli
from jetspec_sglang.cli.budget import parse_values
from jetspec_sglang.client.errors import UsageError


def test_set_reads_back(server, capsys):
    assert cli.main(["budget", "set", server.url, "32", "8=16"]) == 0
    assert server.applied == [{"jetspec_tree_budget": 32, "jetspec_tree_budget.8": 16}]
    assert "budget 32 (from 8 requests 16)" in capsys.readouterr().out


def test_get_as_text_and_json(server, capsys):
    assert cli.main(["budget", "get", server.url]) == 0
    assert "budget 64" in capsys.readouterr().out
    assert cli.main(["budget", "get", server.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["budget"] == 64


def test_refusal_is_an_error_with_the_servers_reason(server, capsys):
    assert cli.main(["budget", "set", server.url, "100000"]) == 1
    error = capsys.readouterr().err
    assert "refused" in error
    assert server.engine.last_refusal in error
    assert len(error.splitlines()) == 1


def test_server_without_jetspec(server, capsys):
    server.faults.no_jetspec = True
    assert cli.main(["budget", "set", server.url, "8"]) == 1
    assert "does not decode with JETSPEC" in capsys.readouterr().err
    assert server.applied == []


def test_no_server(capsys):
    assert cli.main(["budget", "get", "http://127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert "no server answers at http://127.0.0.1:1" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "said"), [("oops", "JSONDecodeError"), ("{}", "not booleans"), ("[1]", "not booleans")]
)
def test_strange_answer(server, capsys, body, said):
    server.faults.body["/set_internal_state"] = body
    assert cli.main(["budget", "set", server.url, "8"]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_server_error(server, capsys):
    server.faults.status["/set_internal_state"] = 500
    assert cli.main(["budget", "set", server.url, "8"]) == 1
    assert "500" in capsys.readouterr().err


def test_keys_from_files(locked_server, tmp_path, capsys):
    (tmp_path / "api").write_text("api\n")
    (tmp_path / "admin").write_text("admin\n")
    command = ["budget", "set", locked_server.url, "8"]
    keys = ["--api-key-file", str(tmp_path / "api")]
    assert cli.main(command) == 1
    assert cli.main([*command, *keys]) == 1
    assert "--admin-api-key-file" in capsys.readouterr().err
    assert cli.main([*command, *keys, "--admin-api-key-file", str(tmp_path / "admin")]) == 0
    assert locked_server.applied == [{"jetspec_tree_budget": 8}]


def test_keys_from_the_environment(locked_server, monkeypatch):
    monkeypatch.setenv("JETSPEC_API_KEY", "api")
    monkeypatch.setenv("JETSPEC_ADMIN_API_KEY", "admin")
    assert cli.main(["budget", "set", locked_server.url, "8"]) == 0


def test_missing_key_file(server, capsys):
    assert cli.main(["budget", "get", server.url, "--api-key-file", "/nowhere"]) == 2
    assert "/nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    "word", ["0", "-1", "1.5", "x", "nan", "8=", "=8", "8=0", "0=8", "8=1=2", "", "٣"]
)
def test_values_that_are_no_budget(word):
    with pytest.raises(UsageError, match="neither B nor N=B"):
        parse_values([word])


@pytest.mark.parametrize("words", [["8", "16"], ["4=8", "4=16"], ["4=8", "04=16"]])
def test_same_budget_twice(words):
    with pytest.raises(UsageError, match="twice"):
        parse_values(words)


@pytest.mark.parametrize(
    "words",
    [
        ["http://127.0.0.1:1"],
        ["ftp://127.0.0.1", "8"],
        ["http://", "8"],
        ["http://127.0.0.1:99999", "8"],
        ["http://127.0.0.1:x", "8"],
    ],
)
def test_url_without_value_or_of_another_scheme(words, capsys):
    assert cli.main(["budget", "set", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
