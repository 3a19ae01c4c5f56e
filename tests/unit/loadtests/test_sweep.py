"""`jetspec bench load` with servers, controller and load generator replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jetspec_sglang.cli import main
from jetspec_sglang.client import measured
from loadtests import plots
from loadtests.experiment import controlled, generator, sweep
from loadtests.summary import summarise
from tests.unit.loadtests.build import answered, config

SPEEDS = {"plain": 10, "B=1": 10, "B=4": 20, "adaptive": 21}
WORDS = ["bench", "load", "--rates", "1", "2", "--seeds", "2", "--seconds", "4", "--warmup", "1"]


class Stage:
    """What the command did, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.reject: set[str] = set()
        self.started: list[str] = []

    def run(self, url: str, folder: Path, options: dict[str, str]) -> dict[str, Any]:
        if options.get("arrivals") == "closed" and options.get("max-tokens") == "16":
            return {}
        name = options["label"]
        point = options.get("rate") or f"batch {options['users']}"
        self.done.append(f"{name} {point} seed {options['seed']} on {url}")
        chosen = config(seconds=4, warmup=1, seed=options["seed"])
        records = [answered(i, due=1 + 0.2 * i, tpot=1 / SPEEDS[name]) for i in range(5)]
        valid = name not in self.reject
        self.reject.discard(name)
        summary = summarise(chosen, records, 4.0) | {
            "label": name, "request_rate": float(options.get("rate", 0)) or None, "valid": valid,
            "config": chosen.model_dump(), "load_generator_cpu_share": 0.01,
            "rejected_because": [] if valid else ["late"],
        }  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.json").write_text(json.dumps(summary))
        return summary


class FakeServer:
    def __init__(self, name: str, stage: Stage) -> None:
        self.url, self._stage = f"http://{name}", stage

    def jetspec_states(self) -> list[dict[str, Any]]:
        return [{"tiers": [1, 4], "budget": 4}]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    found = Stage()

    class FakeFleet:
        def get(self, launch: measured.Launch) -> tuple[FakeServer, bool]:
            fresh = launch.name not in found.started
            if fresh:
                found.started.append(launch.name)
            return FakeServer(launch.name, found), fresh

    @contextmanager
    def fleet(*_: object, **__: object) -> Iterator[FakeFleet]:
        yield FakeFleet()

    @contextmanager
    def controller(url: str, *_: object, **__: object) -> Iterator[None]:
        found.done.append("controller starts")
        yield
        found.done.append("controller ends")

    monkeypatch.setattr(measured, "fleet", fleet)
    monkeypatch.setattr(controlled, "controller", controller)
    monkeypatch.setattr(generator, "run", found.run)
    monkeypatch.setattr(sweep, "drain", lambda server: None)
    monkeypatch.setattr(sweep, "flush_cache", lambda server: found.done.append("flush"))
    monkeypatch.setattr(sweep, "set_budget", lambda server, b: found.done.append(f"budget {b}"))
    return found


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are empty files. The first test here draws them."""
    monkeypatch.setattr(plots, "sweep", lambda groups, file, *_: file.write_bytes(b""))
    monkeypatch.setattr(plots, "speed", lambda groups, file, *_: file.write_bytes(b""))


def test_every_policy_gets_every_rate_and_seed(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "plot.png"
    figure = tmp_path / "figure.png"
    words = [*WORDS, "--out", str(tmp_path / "out"), "--plot", str(plot), "--figure", str(figure)]
    assert main(words) == 0
    loads = [one for one in stage.done if " seed " in one]
    assert len(loads) == len(set(loads)) == 4 * 2 * 2
    assert {one.split()[0] for one in loads} == set(SPEEDS)
    assert all(("plain-" in one) == one.startswith("plain ") for one in loads)
    for place, step in enumerate(stage.done):
        if step.startswith("adaptive "):
            assert stage.done[place - 3 : place] == ["flush", "budget 4", "controller starts"]
            assert stage.done[place + 1] == "controller ends"
        elif step.startswith("B="):
            assert stage.done[place - 2 : place] == ["flush", f"budget {step[2]}"]
    shown = capsys.readouterr().out
    assert "| B=4 |" in shown
    assert "1.05" in shown, "adaptive / B=4"
    assert "0 failed" in shown
    assert plot.stat().st_size > 10_000
    assert figure.stat().st_size > 10_000
    assert (tmp_path / "out" / "rates.csv").exists()


def test_a_second_run_measures_nothing_and_starts_nothing(
    stage: Stage, tmp_path: Path, undrawn: None
) -> None:
    words = [*WORDS, "--out", str(tmp_path)]
    assert main(words) == 0
    stage.done.clear()
    stage.started.clear()
    assert main(words) == 0
    assert (stage.done, stage.started) == ([], [])
    assert main([*words, "--seeds", "3"]) == 0
    assert len([one for one in stage.done if " seed 2 " in one]) == 8
    assert not [one for one in stage.done if " seed 0 " in one]


def test_a_rejected_cell_is_measured_again(stage: Stage, tmp_path: Path, undrawn: None) -> None:
    stage.reject = {"B=4"}
    one = ["--rates", "1", "--seeds", "1", "--out", str(tmp_path)]
    assert main([*WORDS, *one]) == 0
    assert len([done for done in stage.done if done.startswith("B=4 ")]) == 2


def test_batches_are_shown_beside_the_papers(stage: Stage, tmp_path: Path) -> None:
    document = tmp_path / "doc.md"
    document.write_text("<!-- bench:load-batches -->\n<!-- /bench:load-batches -->\n")
    words = [*WORDS, "--batches", "1", "4", "--out", str(tmp_path / "out")]
    assert main([*words, "--write", str(document)]) == 0
    assert "paper: B=128" in document.read_text()
    assert {one.split(" seed")[0].split(" ", 1)[1] for one in stage.done if " seed " in one} == {
        "batch 1",
        "batch 4",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rates", "nan"], "--rates nan: must be a number above 0"),
        (["--rates", "1", "0"], "--rates 0: "),
        (["--seeds", "0"], "--seeds 0: "),
        (["--tiers", "-4"], "--tiers -4: "),
        (["--trace", "/nowhere"], "--trace /nowhere: no such file"),
        (["--arrivals", "sometimes"], "--arrivals sometimes: "),
        (["--slo", "fast"], "--slo fast: "),
        (["--policy", "min_budget"], "--policy min_budget: must be KEY=VALUE"),
        (["--warmup", "5"], "--warmup 5: must be shorter"),
    ],
)
def test_bad_input(
    words: list[str], said: str, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*WORDS, "--out", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not stage.started
    assert not (tmp_path / "out").exists()
