"""`pin`, `unpin`, `pause` and `resume` against a controller that listens, and what goes wrong."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
import uvicorn
from jetspec_controller.api.app import create_app
from jetspec_controller.cli import main
from jetspec_controller.commands import TOKEN_VARIABLE, seconds, token
from jetspec_controller.tokens import Tokens

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# operators\nops {TOKEN}\n")
    return path


async def command(*words: str) -> int:
    """Run a command in a thread of its own, as in a process of its own."""
    try:
        return await asyncio.to_thread(main, words)
    except SystemExit as end:
        return int(end.code or 0)


async def test_from_pin_to_resume(make, tokens: Path, monkeypatch, capsys) -> None:
    settings = {"api": {"insecure": False, "token_file": tokens}}
    async with make(settings=settings) as rig:
        await rig.ticks(2)
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(rig.service), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        where = ("--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
        keyed = (*where, "--token-file", str(tokens))
        try:
            said = ("--ttl", "2h", "--reason", "incident 42")
            assert await command("pin", rig.name, "128", *said, *keyed) == 0
            pin = rig.service.state.pins[rig.name]
            assert (pin.budget, pin.actor, pin.reason) == (128, "ops", "incident 42")
            assert pin.expires_at - pin.created_at == 7200
            await rig.ticks()
            assert rig.server.engine.budget == 128

            monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
            assert await command("unpin", rig.name, *where) == 0
            assert not rig.service.state.pins
            assert await command("pause", *where) == 0
            assert rig.service.state.paused
            assert await command("resume", *where) == 0
            assert not rig.service.state.paused
            capsys.readouterr()

            mistakes = {
                ("unpin", rig.name): "has no pin",
                ("pin", "nobody:1", "16"): "there is no target 'nobody:1'",
                ("pin", "a/b", "16"): "target is 'a/b'",
                ("pin", rig.name, "9999"): "budget",
                ("pin", rig.name, "512"): "budget is 512; allowed is 1 to 256",
                ("pin", rig.name, "16", "--ttl", "90d"): "ttl_s",
            }
            for words, expected in mistakes.items():
                assert await command(*words, *where) == 2
                error = capsys.readouterr().err
                assert expected in error
                assert "Traceback" not in error
            monkeypatch.setenv(TOKEN_VARIABLE, "x" * 16)
            assert await command("pause", *where) == 2
            assert "HTTP 401" in (error := capsys.readouterr().err)
            assert "--token-file" in error
            monkeypatch.delenv(TOKEN_VARIABLE)
            assert await command("pause", *where) == 2
            assert not rig.service.state.paused
        finally:
            server.should_exit = True
            await serving


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause", "--url", "http://127.0.0.1:9"], "is the controller running"),
        (["pause", "--url", "127.0.0.1:30900"], "must begin with http://"),
        (
            ["pause", "--url", "http://127.0.0.1:abc"],
            "this is not a valid URL; check its host and port",
        ),
        (["pause", "--url", "http://127.0.0.1:99999"], "this is not a valid URL"),
        (["pause", "--token-file", "/nowhere"], "--token-file: /nowhere"),
        (["pin", "a:1", "many"], "invalid int value: 'many'"),
        (["pin", "a:1", "16", "--ttl", "soon"], "'soon' is not a duration"),
        (["pin", "a:1", "16", "--ttl", "0"], "'0' is not a duration"),
        (["pin", "a:1"], "budget"),
    ],
)
async def test_mistakes_name_what_is_wrong(words: list[str], said: str, capsys) -> None:
    assert await command(*words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("1d", 86400)]
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


def test_the_file_s_token_wins_over_the_environment(tokens: Path) -> None:
    environment = {TOKEN_VARIABLE: " other \n"}
    assert token(tokens, environment) == TOKEN
    assert token(None, environment) == "other"
    assert token(None, {}) is None


def test_the_token_sent_is_one_that_the_controller_takes(tokens: Path, make) -> None:
    from jetspec_controller.settings import ApiSettings

    assert Tokens.load(ApiSettings(token_file=tokens)).actor(token(tokens)) == "ops"
