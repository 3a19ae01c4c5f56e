"""`jetspec train`: flags, a file, both; and one line for every mistake."""

import json
import sys

import pytest

from jetspec_sglang.cli import main
from tests.unit.training.helpers import tiny_settings


def test_flags_win_over_the_file(tmp_path, capsys):
    config = tmp_path / "recipe.json"
    config.write_text(tiny_settings(tmp_path, "run").model_dump_json())
    run = tmp_path / "other"
    arguments = ["train", "--config", str(config), "--run", str(run), "--steps", "3"]
    assert main([*arguments, "--no-causal", "--target-layer-ids", "1", "3"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "head")
    written = json.loads((run / "settings.json").read_text())
    assert (written["steps"], written["causal"], written["target_layer_ids"]) == (3, False, [1, 3])
    assert json.loads((run / "head" / "config.json").read_text())["is_causal"] is False


def test_mistakes_are_one_line(tmp_path, capsys):
    assert main(["train", "--steps", "x"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for part in ("target: Field required", "steps: Input should be a valid integer"):
        assert part in error
    (tmp_path / "bad.json").write_text("{")
    assert main(["train", "--config", str(tmp_path / "bad.json")]) == 2
    assert "bad.json" in capsys.readouterr().err


def test_contradictions_are_refused(tmp_path, capsys):
    config = tmp_path / "recipe.json"
    config.write_text(tiny_settings(tmp_path, "run").model_dump_json())
    start = ["train", "--config", str(config)]
    assert main([*start, "--no-causal", "--short-block-size", "3"]) == 2
    assert "only a causal head's block can be cut short" in capsys.readouterr().err
    assert main([*start, "--warmup-steps", "6"]) == 2
    assert "must be below steps = 6" in capsys.readouterr().err
    assert main([*start, "--data", str(tmp_path / "none.npz")]) == 1
    assert "none.npz: no such shard" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "modules", "flags"),
    [
        ("accelerate", ("accelerate", "jetspec_sglang.training.run"), []),
        ("tensorboard", ("tensorboard", "torch.utils.tensorboard"), ["--tensorboard"]),
    ],
)
def test_without_the_extra(package, modules, flags, tmp_path, monkeypatch, capsys):
    config = tmp_path / "recipe.json"
    config.write_text(tiny_settings(tmp_path, "run").model_dump_json())
    for name in modules:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["train", "--config", str(config), *flags]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{package} is not installed; pip install 'jetspec-sglang[train]'" in last
