"""The console script: its words, its exit statuses, replay and explain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jetspec_controller.cli import main
from jetspec_controller.core import Fault
from jetspec_controller.explain import describe, explain
from jetspec_controller.http_client import HttpClient, Reply
from jetspec_controller.recorder import Recorder, read

pytestmark = pytest.mark.anyio

TOKEN_LINE = "ops 0123456789abcdef\n"


def config(folder: Path, text: str = "targets: ['http://127.0.0.1:30000']\n") -> Path:
    path = folder / "controller.yaml"
    path.write_text(text)
    return path


def test_valid_configuration(tmp_path: Path, capsys) -> None:
    path = config(tmp_path)
    assert main(["check-config", "--config", str(path), "--insecure"]) == 0
    assert capsys.readouterr().out.startswith("valid: ")
    assert main(["check-config", "--config", str(path), "--insecure", "--show"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"]["interval_s"] == 2.0


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("targets: []\n", ["--insecure"], "targets"),
        ("nonsense: 1\n", ["--insecure"], "nonsense"),
        (None, [], "--token-file"),
        (None, ["--token-file", "/nowhere"], "/nowhere"),
        ("source: {cost_file: /nowhere}\ntargets: ['http://a']\n", ["--insecure"], "cost_file"),
        (
            "control: {tls: {ca_file: /nowhere}}\ntargets: ['http://a']\n",
            ["--insecure"],
            "tls",
        ),
    ],
)
def test_mistakes_end_with_2_and_a_line(
    tmp_path: Path, capsys, text: str | None, arguments: list[str], said: str
) -> None:
    path = config(tmp_path) if text is None else config(tmp_path, text)
    assert main(["check-config", "--config", str(path), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert main(["run", "--config", str(path), "--port", "0", *arguments]) == 2


@pytest.mark.parametrize(
    ("content", "good"),
    [
        ("points: [{rows: 1, seconds: 0.01}, {rows: 64, seconds: 0.02}]", True),
        ("points: [{rows: 1, seconds: 0.01}]", False),
        ("points: [{rows: 1, seconds: 0}, {rows: 2, seconds: 1}]", False),
        ("points: [{rows: 1}]", False),
        ("[]", False),
        ("points: [", False),
    ],
)
def test_cost_files(tmp_path: Path, content: str, good: bool) -> None:
    cost = tmp_path / "cost.yaml"
    cost.write_text(content)
    path = config(tmp_path, f"targets: ['http://a']\nsource: {{cost_file: {cost}}}\n")
    assert main(["check-config", "--config", str(path), "--insecure"]) == (0 if good else 2)


async def test_replay_gives_the_same_decisions(make, tmp_path: Path, capsys) -> None:
    recording = tmp_path / "observations.jsonl"
    async with make(settings={"record": recording}) as rig:
        rig.server.faults.nan.add("jetspec_round_cost_seconds")
        for running in (1, 1, 1, 8, 8, 8, 1, 1, 1):
            rig.server.engine.running = running
            await rig.ticks()
        live = [
            (entry.action, str(entry.budget), entry.reason)
            for entry in rig.service.loop.fleet[rig.name].history
        ]
    assert main(["replay", str(recording)]) == 0
    replayed = [tuple(line.split()[2:5]) for line in capsys.readouterr().out.splitlines()]
    assert replayed == live
    assert main(["replay", str(recording), "--policy", '{"governor": "off"}']) == 0
    assert all("off" in line.split() for line in capsys.readouterr().out.splitlines())
    assert main(["replay", str(recording), "--target", "nobody"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["replay", str(recording), "--policy", '{"max_budget": 0}']) == 2
    assert "policy.max_budget" in capsys.readouterr().err


async def test_recorded_observations_are_the_same_to_the_last_nan(make, tmp_path: Path) -> None:
    recording = tmp_path / "observations.jsonl"
    async with make(settings={"record": recording, "scrape": {"loads": False}}) as rig:
        rig.server.faults.nan.add("sglang:num_running_reqs")
        await rig.ticks(2)
        seen = rig.service.loop.fleet[rig.name].observation
    *_, last = read(recording)
    assert repr(last.observation) == repr(seen)
    assert {error.fault for error in last.observation.errors} <= set(Fault)


def test_broken_recordings_name_their_line(tmp_path: Path, capsys) -> None:
    recording = tmp_path / "r.jsonl"
    recording.write_text('{"now": 1}\n')
    assert main(["replay", str(recording)]) == 2
    assert f"{recording}:1:" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "none")]) == 1


async def test_a_full_disk_ends_the_recording_only(make, caplog) -> None:
    async with make(settings={"record": "/dev/full"}) as rig:
        rig.server.engine.running = 8
        await rig.ticks(6)
        assert rig.server.engine.budget == 16
    assert "recording" in caplog.text


def test_recorder_needs_a_writable_place(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        Recorder(tmp_path)


def test_explain_needs_a_controller(capsys) -> None:
    for url in ("http://127.0.0.1:9", "nonsense"):
        assert main(["explain", "--url", url]) == 2
        assert url in capsys.readouterr().err


async def test_explain_asks_something_else(monkeypatch, capsys) -> None:
    async def answer(*_: object, **__: object) -> Reply:
        return Reply(b'{"targets": [{"id": "a"}]}', None)

    monkeypatch.setattr(HttpClient, "get", answer)
    with pytest.raises(ValueError, match="does not answer like a controller"):
        await explain("http://127.0.0.1:9", None)


def test_an_interrupt_is_no_traceback(monkeypatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jetspec_controller.cli.load", interrupted)
    assert main(["check-config", "--config", str(config(tmp_path))]) == 130


@pytest.mark.parametrize("policy", ["{x", "[1]"])
def test_a_policy_flag_is_a_json_object(policy: str, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["replay", "r.jsonl", "--policy", policy])
    assert end.value.code == 2
    assert f"{policy!r} is not a JSON object" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["state", "audit"])
def test_a_place_that_cannot_be_written_ends_the_start(
    tmp_path: Path, capsys, section: str
) -> None:
    text = f"targets: ['http://127.0.0.1:9']\n{section}: {{path: {tmp_path}}}\n"
    command = ["run", "--config", str(config(tmp_path, text)), "--insecure", "--port", "0"]
    assert main(command) == 1
    assert capsys.readouterr().err.splitlines()[-1].count(str(tmp_path)) == 1


async def test_explanation_in_words(make) -> None:
    from jetspec_controller.api.views import TargetDetail, detail
    from pydantic import TypeAdapter

    async with make() as rig:
        await rig.ticks(3)
        managed = rig.service.loop.fleet[rig.name]
        body = TypeAdapter(TargetDetail).dump_python(detail(rig.service, managed), mode="json")
        text = "\n".join(describe(body))
        assert f"{rig.name} at {rig.server.url}: model" in text
        assert "*     64" in text
        await rig.server.stop()
        await rig.ticks()
        body = TypeAdapter(TargetDetail).dump_python(detail(rig.service, managed), mode="json")
        assert "unusable: load: down" in "\n".join(describe(body))
