"""`jetspec serve`: the SGLang command line it makes, and what it refuses before that."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jetspec_sglang import cli, embedded, families
from jetspec_sglang.cli import controller, models, serve
from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.cli.launch import sglang_arguments, wants_jetspec
from jetspec_sglang.client.errors import CommandError, UsageError
from jetspec_sglang.host import activation

hold = serve.hold


@pytest.fixture(autouse=True)
def _ports_are_not_held(monkeypatch):
    """The lock of a launch lives as long as its process, here the tests' own."""
    monkeypatch.setattr(serve, "hold", lambda port, flag: None)


def arguments(*argv, model="M", head="H", jetspec=True, host_dtype="bfloat16"):
    """The made command line as a mapping from flag to value (None for a switch)."""
    words = sglang_arguments(
        Flags(argv), model=model, head=head, jetspec=jetspec, host_dtype=host_dtype
    )
    return {
        word: words[i + 1] if i + 1 < len(words) and not words[i + 1].startswith("--") else None
        for i, word in enumerate(words)
        if word.startswith("--")
    }


def test_defaults_of_the_embedded_model_on_the_host():
    made = arguments()
    assert made["--model-path"] == "M"
    assert made["--speculative-algorithm"] == "JETSPEC"
    assert made["--speculative-draft-model-path"] == "H"
    assert made["--dtype"] == "bfloat16"
    assert made["--page-size"] == "1"
    assert "--sleep-on-idle" in made
    assert "--enable-metrics" in made


def test_given_flags_win_in_every_spelling(tmp_path):
    config = tmp_path / "server.yaml"
    config.write_text("page_size: 4\nmax-running-requests: 3\n")
    made = arguments("--dtype=float32", "--max-total-tokens", "99", "--config", str(config))
    assert "--dtype" not in made
    assert made["--max-total-tokens"] == "99"
    assert "--page-size" not in made
    assert "--max-running-requests" not in made


def test_users_flags_come_last_so_that_an_abbreviation_wins_too():
    words = sglang_arguments(
        Flags(["--speculative-algo", "NGRAM"]), model="M", head="H", jetspec=True, host_dtype="D"
    )
    assert words[-2:] == ["--speculative-algo", "NGRAM"]


def test_plain_on_the_host_differs_only_in_speculation():
    plain = arguments(head=None, jetspec=False)
    ours = arguments()
    assert {k: v for k, v in ours.items() if not k.startswith("--speculative-")} == plain


def test_accelerator_keeps_sglangs_own_choices():
    made = arguments(host_dtype=None)
    assert "--dtype" not in made
    assert "--sleep-on-idle" not in made


def test_memory_fraction_replaces_the_embedded_token_limit():
    assert "--max-total-tokens" not in arguments("--mem-fraction-static", "0.5")
    assert "--max-total-tokens" not in arguments(model=None)


@pytest.mark.parametrize(
    ("argv", "plain", "expected"),
    [
        ([], False, True),
        (["--speculative-algorithm", "jetspec"], False, True),
        (["--speculative-algorithm=NGRAM"], False, False),
        ([], True, False),
    ],
)
def test_wants_jetspec(argv, plain, expected):
    assert wants_jetspec(Flags(argv), plain) is expected


def test_plain_with_speculation_is_refused():
    with pytest.raises(UsageError, match="--speculative-eagle-topk"):
        wants_jetspec(Flags(["--speculative-eagle-topk", "4"]), plain=True)


@pytest.mark.parametrize("content", ["- a\n", "a: [", None])
def test_unusable_config_file(tmp_path, content):
    file = tmp_path / "c.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=r"c\.yaml"):
        Flags(["--config", str(file)])


def test_flag_that_is_no_number():
    with pytest.raises(UsageError, match="--port is 'x'"):
        Flags(["--port", "x"]).integer("--port", 1)


class BecameError(Exception):
    """Raised in place of exec, with the command."""


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Runs `jetspec serve ARGUMENTS` on a pretended host with model and head; gives the command."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv(families.VARIABLE, "mine")  # so that a launch's own value is undone
    monkeypatch.delenv(families.VARIABLE)
    monkeypatch.setattr(embedded, "target_path", lambda: target)
    monkeypatch.setattr(embedded, "head_path", lambda: "shipped-head")
    monkeypatch.setattr(models, "require_head", lambda head, model: ())
    monkeypatch.setattr(activation, "activate", lambda: activation.HOST_PLATFORM)

    def become(path, command):
        raise BecameError(command)

    monkeypatch.setattr(serve.os, "execv", become)

    def run(*words):
        with pytest.raises(BecameError) as became:
            cli.main(["serve", *words, "--port", str(free_port())])
        return became.value.args[0]

    return run


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_controller_it_becomes_sglang(launched):
    command = launched("--no-controller", "--context-length", "512")
    assert command[0] == sys.executable
    assert "sglang.launch_server" in command
    assert command[command.index("--context-length") + 1] == "512"
    assert command[command.index("--speculative-draft-model-path") + 1] == "shipped-head"


def test_sglang_imports_few_models_unless_the_user_names_others(launched, monkeypatch):
    launched("--no-controller")
    assert os.environ[families.VARIABLE] == families.PACKAGE
    monkeypatch.setenv(families.VARIABLE, "mine")
    launched("--no-controller")
    assert os.environ[families.VARIABLE] == "mine"


def test_plain_has_no_head_and_no_controller(launched):
    command = launched("--plain")
    assert "sglang.launch_server" in command
    assert not [word for word in command if word.startswith("--speculative")]


@pytest.mark.usefixtures("controller_installed")
def test_the_servers_lines_go_to_a_log(launched, tmp_path):
    plan = json.loads(launched()[3])
    assert Path(plan["log"]).parent == tmp_path / "cache" / "serve"
    assert Path(plan["log"]).read_bytes() == b""
    assert plan["told"]["head"] == "shipped-head"
    assert "SmolLM2" in plan["told"]["model"]
    named = json.loads(launched("--server-log", str(tmp_path / "mine" / "log"))[3])
    assert named["log"] == str(tmp_path / "mine" / "log")
    assert json.loads(launched("--server-log", "-")[3])["log"] is None


@pytest.mark.usefixtures("controller_installed", "launched")
def test_a_log_that_cannot_be_written_is_refused(tmp_path, capsys):
    words = ["serve", "--server-log", str(tmp_path), "--port", str(free_port())]
    assert cli.main(words) == 1
    assert f"--server-log {tmp_path}" in capsys.readouterr().err


@pytest.fixture
def controller_installed(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "jetspec-controller").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(serve.os, "environ", {"PATH": "/usr/bin"} | dict(os.environ))


@pytest.mark.usefixtures("controller_installed")
def test_with_controller_both_are_supervised(launched, tmp_path):
    port = str(free_port())
    command = launched("--controller-port", port, "--admin-api-key", "secret")
    assert command[:3] == [sys.executable, "-m", "jetspec_sglang.client.supervise"]
    plan = json.loads(command[3])
    assert "sglang.launch_server" in plan["server"]
    [companion] = plan["companions"]
    words = companion["command"]
    assert words[words.index("--target") + 1] == plan["url"]
    assert words[words.index("--port") + 1] == port
    assert companion["page"].endswith(port)
    token = Path(words[words.index("--token-file") + 1])
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text().strip()) >= 32
    assert "secret" not in " ".join(words)
    source = serve.os.environ["JETSPEC_CONTROLLER_CONTROL__ADMIN_KEY__ENV"]
    assert serve.os.environ[source] == "secret"
    again = json.loads(launched()[3])["companions"][0]["command"]
    assert token.read_text() == Path(again[again.index("--token-file") + 1]).read_text()


@pytest.mark.usefixtures("controller_installed")
@pytest.mark.parametrize("flags", [["--node-rank", "1"], ["--ssl-certfile", "c.pem"]])
def test_no_controller_where_it_cannot_work(launched, capsys, flags):
    assert "sglang.launch_server" in launched(*flags)
    assert "without the controller" in capsys.readouterr().err


def test_controller_that_is_not_installed(launched, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert "sglang.launch_server" in launched()
    assert "not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "url"),
    [
        ([], "http://127.0.0.1:5"),
        (["--host", "0.0.0.0"], "http://127.0.0.1:5"),
        (["--host", "10.0.0.7"], "http://10.0.0.7:5"),
        (["--host", "fd00::7"], "http://[fd00::7]:5"),
    ],
)
def test_address_of_the_server(argv, url):
    assert controller.server_url(Flags(argv), 5) == url


def test_positional_model_is_sglangs_model_path(launched, tmp_path):
    model = tmp_path / "mine"
    model.mkdir()
    (model / "config.json").write_text("{}")
    command = launched(str(model), "--plain")
    assert command[command.index("--model-path") + 1] == str(model)
    assert command.count("--model-path") == 1


def refused(capsys, *words):
    status = cli.main(["serve", *words])
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    return status, error


def test_no_head_says_how_to_get_one(capsys, monkeypatch):
    monkeypatch.setattr(embedded, "head_path", lambda: None)
    status, error = refused(capsys, "--port", str(free_port()), "--no-controller")
    assert status == 1
    for way in ("JETSPEC_HEAD", "jetspec train", "--plain"):
        assert way in error


def test_other_model_needs_its_own_head(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(embedded, "head_path", lambda: "shipped-head")
    (tmp_path / "config.json").write_text("{}")
    status, error = refused(capsys, "--port", str(free_port()), "--model-path", str(tmp_path))
    assert status == 1
    assert f"no draft head for {tmp_path}" in error


def test_a_missing_model_is_named_before_its_head(capsys, monkeypatch):
    monkeypatch.setattr(embedded, "head_path", lambda: "shipped-head")
    status, error = refused(capsys, "--port", str(free_port()), "--model-path", "/some/model")
    assert (status, "--model-path /some/model: no such folder" in error) == (1, True)


def test_port_in_use(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        status, error = refused(capsys, "--plain", "--port", port)
        assert status == 1
        assert f"127.0.0.1:{port}" in error
        status, error = refused(
            capsys, "--port", str(free_port()), "--controller-port", port, "--model-path", "/m"
        )
        assert "--controller-port" in error


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_port_out_of_range(capsys, port):
    status, error = refused(capsys, "--plain", "--port", port)
    assert status == 2
    assert "--port" in error


def test_unknown_model_path(capsys):
    status, error = refused(capsys, "--plain", "--port", str(free_port()), "--model", "/no/such")
    assert status == 1
    assert "/no/such: no such folder" in error


def test_folder_without_a_model(tmp_path):
    with pytest.raises(CommandError, match=r"no config\.json"):
        models.check_model(str(tmp_path))


@pytest.mark.parametrize("model", ["s3://bucket/model", "org/repo:Q4_K_M"])
def test_spellings_that_only_sglang_knows_pass(model):
    models.check_model(model)


def test_hub_that_does_not_answer(monkeypatch):
    import huggingface_hub

    def offline(*_, **__):
        raise ConnectionError("no route\nmore lines")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(CommandError, match=r"the hub did not provide it \(no route\)"):
        models.check_model("org/model")


def test_bad_settings_stop_it(capsys, launched, monkeypatch):
    monkeypatch.setenv("JETSPEC_SETTINGS", '{"budgett": 3}')
    status, error = refused(capsys, "--port", str(free_port()), "--no-controller")
    assert status == 1
    assert "budgett" in error


@pytest.mark.parametrize("value", ["0", "-1", "100000", "x", "1.5"])
def test_largest_budget_out_of_range(value, capsys):
    words = ["--port", str(free_port()), "--no-controller", "--speculative-num-draft-tokens", value]
    status, error = refused(capsys, *words)
    assert status == 2
    assert "--speculative-num-draft-tokens" in error
    assert value in error


def test_settings_above_the_largest_budget(capsys, monkeypatch):
    monkeypatch.setenv("JETSPEC_SETTINGS", '{"budget": 32}')
    words = ["--port", str(free_port()), "--no-controller", "--speculative-num-draft-tokens", "16"]
    status, error = refused(capsys, *words)
    assert status == 1
    assert "JETSPEC_SETTINGS: budget = 32: must be a whole number from 1 to 16" in error


def test_a_second_launch_on_the_port_of_one_that_still_loads(tmp_path, monkeypatch):
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path))
    script = (
        "import os, sys; from jetspec_sglang.cli.ports import hold; hold(31234, '--port');"
        "os.execv('/bin/sh', ['sh', '-c', 'echo held; cat'])"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout.readline() == b"held\n"
    with pytest.raises(CommandError, match="starting on port 31234; choose another with --port"):
        hold(31234, "--port")
    hold(31235, "--port")
    first.communicate()
    hold(31234, "--port")


def test_a_cache_that_cannot_be_written_does_not_keep_a_server_from_starting(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "file"))
    hold(31236, "--port")
