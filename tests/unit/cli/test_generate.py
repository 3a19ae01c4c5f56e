"""`jetspec generate` against a fake server: streaming, figures, and the budget put back."""

import pytest

from jetspec_sglang import cli
from jetspec_sglang.cli.generate import figures


def test_answer_and_figures(server, capsys):
    assert (
        cli.main(["generate", "Capital of France?", "--url", server.url, "--max-tokens", "9"]) == 0
    )
    shown = capsys.readouterr()
    assert shown.out == "The capital is Paris.\n"
    assert "9 tokens" in shown.err
    assert "tokens/s" in shown.err
    assert "τ 2.50 over 3 rounds" in shown.err
    body = server.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "Capital of France?"}]
    assert (body["max_tokens"], body["temperature"]) == (9, 0.0)


def test_plain_server(server, capsys):
    server.speculation = None
    assert cli.main(["generate", "Hi", "--url", server.url]) == 0
    assert "no speculation" in capsys.readouterr().err


def test_budget_is_put_back_with_its_table(server):
    assert cli.main(["budget", "set", server.url, "64", "8=32"]) == 0
    assert cli.main(["generate", "Hi", "--url", server.url, "--budget", "16"]) == 0
    assert server.budgets_seen == [16]
    state = server.engine.read_back()
    assert (state["budget"], state["table"]) == (64, {"8": 32})


def test_budget_is_put_back_after_a_failure(server, capsys):
    server.chat_error = "out of memory"
    assert cli.main(["generate", "Hi", "--url", server.url, "--budget", "16"]) == 1
    assert "out of memory" in capsys.readouterr().err
    assert server.engine.read_back()["budget"] == 64


def test_a_budget_that_somebody_else_set_meanwhile_stays(server, capsys):
    server.budget_meanwhile = 32
    assert cli.main(["generate", "Hi", "--url", server.url, "--budget", "16"]) == 0
    assert server.engine.read_back()["budget"] == 32
    assert "the budget changed to 32" in capsys.readouterr().err


def test_refused_budget_asks_nothing(server, capsys):
    assert cli.main(["generate", "Hi", "--url", server.url, "--budget", "99999"]) == 1
    assert "refused" in capsys.readouterr().err
    assert server.bodies == []


def test_server_that_drops_the_stream(server, capsys):
    server.faults.drop.add("/v1/chat/completions")
    assert cli.main(["generate", "Hi", "--url", server.url]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arrivals", "tokens", "line"),
    [
        ([], 0, "0 tokens"),
        ([0.5], 3, "3 tokens, first after 0.50 s, no speculation"),
        ([0.5, 1.5, 2.5], 9, "9 tokens, first after 0.50 s, then 4.0 tokens/s, no speculation"),
    ],
)
def test_figures(arrivals, tokens, line):
    assert figures(arrivals, tokens, {}) == line
