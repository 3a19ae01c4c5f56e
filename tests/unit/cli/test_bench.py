"""`jetspec bench` with the servers replaced: what is printed, written, and the exit status."""

import json
from contextlib import contextmanager

import pytest

from jetspec_sglang.bench import curve
from jetspec_sglang.bench import round as rounds
from jetspec_sglang.bench import speed as serving
from jetspec_sglang.cli import bench, main
from jetspec_sglang.client import measured
from jetspec_sglang.client.load import LoadResult


class FakeFleet:
    """Its servers are the launches themselves; `started` is the order of their first use."""

    def __init__(self, flags):
        self.flags, self.started = flags, []

    def get(self, launch):
        new = launch not in self.started
        if new:
            self.started.append(launch)
        return launch, new


@pytest.fixture
def fleet(monkeypatch):
    made = []

    @contextmanager
    def fake(flags, port, logs, *, together=False):
        made.append(FakeFleet(flags))
        yield made[-1]

    monkeypatch.setattr(measured, "fleet", fake)
    monkeypatch.setattr(bench, "default_dtype", lambda: "bfloat16")
    return made


@pytest.fixture
def loads(monkeypatch):
    """Loads whose speed is 10 tokens/s plain, and budget more with JETSPEC."""
    budgets = {}
    monkeypatch.setattr(serving, "set_budget", budgets.__setitem__)
    monkeypatch.setattr(serving, "warm_up", lambda *_: None)
    monkeypatch.setattr(serving, "flush_cache", lambda *_: None)

    def run_load(launch, prompts, batch, max_tokens):
        tokens = len(prompts) * max_tokens
        if launch.rule is None:
            return LoadResult(tokens / 10, tokens)
        return LoadResult(tokens / (10 + budgets[launch]), tokens, 100, 150)

    monkeypatch.setattr(serving, "run_load", run_load)


def test_serve_compares_every_configuration(fleet, loads, tmp_path, capsys):
    file = tmp_path / "samples.json"
    words = ["--batches", "1", "2", "--budgets", "10", "--chains", "5", "--repeats", "2"]
    words += ["--jetspec-dtypes", "float32"]
    status = main(["bench", "serve", *words, "--json", str(file), "--model-path", "M"])
    out = capsys.readouterr().out
    assert status == 0
    assert "| plain | bfloat16 |  |  | 10.0 (10.0-10.0) 1.00x |" in out
    assert "| chain | float32 | 5 | 2.50 | 15.0 (15.0-15.0) 1.50x |" in out
    assert "| tree | float32 | 10 | 2.50 | 20.0 (20.0-20.0) 2.00x |" in out
    samples = json.loads(file.read_text())["samples"]
    assert len(samples) == 4 * 2 * 2
    assert {s["rule"] for s in samples} == {None, "chain", "best_first"}
    assert fleet[0].flags == ["--model-path", "M"]
    assert [launch.name for launch in fleet[0].started] == [
        "plain-float32", "plain-bfloat16", "chain-float32", "tree-float32",
    ]  # fmt: skip


@pytest.mark.parametrize(("commit", "status"), [(0.05, 0), (0.25, 1)])
def test_round_fails_when_too_much_is_outside_gemms(fleet, monkeypatch, capsys, commit, status):
    seconds = {"scheduler": 0.0, "draft": 0.1, "tree": 0.0, "verify": 0.9, "commit": commit}
    result = rounds.breakdown(seconds, 1.0 + commit, 1, 2.0)
    monkeypatch.setattr(rounds, "measure", lambda *_: result)
    assert main(["bench", "round"]) == status
    assert ("NOT MET" in capsys.readouterr().out) == bool(status)


@pytest.mark.parametrize(("computed", "status"), [(2.05, 0), (2.07, 1), (1.93, 1)])
def test_curve_fails_beyond_its_limit_in_either_direction(
    fleet, monkeypatch, capsys, computed, status
):
    monkeypatch.setattr(curve, "measure", lambda *_: [curve.Point(8, computed, 2.0, 10)])
    assert main(["bench", "curve", "--budgets", "8"]) == status
    assert ("NOT MET" in capsys.readouterr().out) == bool(status)


def test_launch_of_a_server_keeps_the_operators_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("JETSPEC_SETTINGS", '{"calibration_seconds": 0}')
    fleet = measured.Fleet(["--x", "a b"], 40000, tmp_path)
    chain = fleet._command(measured.Launch("float32", "chain"), 40001, tmp_path / "log")
    plain = fleet._command(measured.Launch("float32", None), 40001, tmp_path / "log")
    assert json.loads(chain[4].partition("=")[2]) == {"calibration_seconds": 0, "rule": "chain"}
    assert json.loads(plain[4].partition("=")[2]) == {"calibration_seconds": 0}
    assert "--plain" in plain
    assert "--plain" not in chain
    # Everything but rule and speculation is the same for both.
    assert plain[plain.index("--port") :] == chain[chain.index("--port") :]
    assert plain[-4:] == ["--min-free-slots-delay", "1", "--x", "a b"]
