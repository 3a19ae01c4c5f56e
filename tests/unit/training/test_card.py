"""`jetspec export`: the card says what the run's files say, the vocabulary can be chosen anew."""

import json

import numpy as np

from jetspec_sglang.cli import main
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.training.run import train
from tests.unit.training.helpers import VOCAB, tiny_settings


def test_export(tmp_path, capsys):
    settings = tiny_settings(tmp_path, "run")
    train(settings)
    (tmp_path / "provenance.json").write_text(
        json.dumps({"sources": {"made": {"licence": "CC0-1.0"}}})
    )
    results = {"quiz": {"head": {"top1": [0.5, 0.25], "tau": {"best_first": {"8": 2.5}}}}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    (tmp_path / "notes.md").write_text("Made on a Tuesday.")
    out = tmp_path / "head"
    arguments = ["export", "--run", str(settings.run), "--out", str(out), "--target-name", "Tiny"]
    arguments += ["--results", str(tmp_path / "results.json"), "--draft-vocab-size", "16"]
    arguments += ["--notes", str(tmp_path / "notes.md")]
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip() == str(out)
    card = (out / "README.md").read_text()
    for part in (
        "JetSpec (causal) draft head for Tiny",
        "| made | 12 |",
        "CC0-1.0",
        "16 of 48 ids",
        "| best_first | 2.50 |",
        "| learning_rate | 0.003 |",
        "6 steps",
        "starting from the target's own layers",
        "Made on a Tuesday.",
    ):
        assert part in card, part
    assert len(np.load(out / "draft_vocab_ids.npy")) == 16
    assert HeadConfig.from_folder(out) == HeadConfig.from_folder(settings.run / "head")
    assert main([*arguments[:5], "--draft-vocab-size", "0"]) == 0
    assert not (out / "draft_vocab_ids.npy").exists()
    assert f"{VOCAB} ids" not in (out / "README.md").read_text()


def test_a_missing_run_is_one_line(tmp_path, capsys):
    assert main(["export", "--run", str(tmp_path / "no"), "--out", str(tmp_path / "x")]) == 1
    assert "settings.json" in capsys.readouterr().err


def test_a_head_that_started_from_another_says_so(tmp_path):
    first = tiny_settings(tmp_path, "first")
    train(first)
    settings = tiny_settings(tmp_path, "second", start_from=str(first.run / "head"))
    train(settings)
    assert main(["export", "--run", str(settings.run), "--out", str(tmp_path / "head")]) == 0
    assert "starting from an earlier head" in (tmp_path / "head" / "README.md").read_text()
