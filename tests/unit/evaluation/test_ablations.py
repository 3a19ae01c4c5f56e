"""Ablation runs differ in what they name; the command trains, evaluates and writes the table."""

import json
from pathlib import Path

import pytest

from jetspec_sglang.cli import main
from jetspec_sglang.evaluation.ablations import ABLATIONS, settings_of
from jetspec_sglang.training.prompts import ChatTemplate
from jetspec_sglang.training.responses import load, save
from tests.unit.training.helpers import answers, tiny_settings


@pytest.fixture
def recipe(tmp_path):
    return tiny_settings(tmp_path, "runs")


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_run_differs_from_its_reference_in_what_it_names(name, recipe):
    ablation, corpus = ABLATIONS[name], (Path("corpus.npz"),)
    settings = settings_of(name, recipe, corpus)
    assert settings.run == recipe.run / name
    assert (settings.data == corpus) == ablation.corpus
    if not ablation.against:
        return
    reference = settings_of(ablation.against, recipe, corpus)
    differing = {field for field, value in settings if getattr(reference, field) != value}
    differing -= {"run", "data"}
    changes = dict(ablation.changes)
    for field, value in ABLATIONS[ablation.against].changes.items():
        if changes.get(field) == value:
            del changes[field]
    assert differing == {
        field for field, value in changes.items() if getattr(reference, field) != value
    }
    assert len(differing) + ablation.corpus <= 1


class Echo:
    """A tokenizer whose messages are the prompts' own ids."""

    eos_token_id = 2

    def encode(self, text, add_special_tokens=False):
        return [int(word) for word in text.split()]

    def decode(self, ids):
        return " ".join(map(str, ids))


def test_the_command(tmp_path, recipe, monkeypatch, capsys):
    data = load(recipe.data[0])
    rows = [
        {"question": " ".join(map(str, data.prompt(i))), "answer": "7 8 9 10 11 12"}
        for i in range(len(data))
    ]
    (tmp_path / "gsm8k_train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(ChatTemplate, "of_target", lambda name: ChatTemplate(Echo(), (), (2,)))
    monkeypatch.setattr(ChatTemplate, "render", lambda self, text: self.tokenizer.encode(text))
    save(answers(3, seed=9), tmp_path / "unseen.npz")
    config = tmp_path / "recipe.json"
    config.write_text(
        recipe.model_dump_json(exclude={"target", "data", "run", "held_out"}, exclude_none=True)
    )
    document = tmp_path / "doc.md"
    document.write_text("<!-- bench:ablations -->\n<!-- /bench:ablations -->\n")
    out = tmp_path / "out"
    words = ["bench", "ablations", "--config", config, "--target", recipe.target]
    words += ["--data", *recipe.data, "--answers", f"quiz={tmp_path / 'unseen.npz'}"]
    words += ["--out", out, "--data-dir", tmp_path, "--corpus-sets", "gsm8k_train"]
    words += ["--only", "base", "corpus", "bidirectional", "--write", document]
    assert main([str(word) for word in words]) == 0
    table = document.read_text()
    assert table.count("| quiz |") == 3
    assert "| quiz | bidirectional | causal False |" in table
    assert table.count("| base | ") == 3
    assert load(out / "corpus.npz").sequence(0)[-7:].tolist() == [7, 8, 9, 10, 11, 12, 2]
    assert (out / "corpus" / "head" / "config.json").exists()

    words[words.index("--only") + 1] = "wrong"
    assert main([str(word) for word in words]) == 2
    assert "--only wrong" in capsys.readouterr().err
