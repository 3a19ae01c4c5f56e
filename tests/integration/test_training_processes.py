"""Two processes under accelerate repeat one process with the same global batch."""

import json
import os
import subprocess
import sys

import pytest

from tests.unit.training.helpers import tiny_settings

pytestmark = pytest.mark.integration


def curve(tmp_path, run: str, launcher: list[str]) -> list[dict]:
    settings = tiny_settings(tmp_path, run, steps=8, sequences=8, micro_sequences=2)
    config = tmp_path / f"{run}.json"
    config.write_text(settings.model_dump_json())
    settings.run.mkdir(exist_ok=True)
    result = subprocess.run(
        [sys.executable, *launcher, "-m", "jetspec_sglang.cli", "train", "--config", str(config)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in (settings.run / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_equal_one(tmp_path):
    one = curve(tmp_path, "one", [])
    launch = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    two = curve(tmp_path, "two", [*launch, "--num_machines", "1", "--mixed_precision", "no"])
    assert len(one) == len(two) == 8
    for a, b in zip(one, two, strict=True):
        assert a["anchors"] == b["anchors"]
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["gradient_norm"] == pytest.approx(b["gradient_norm"], rel=1e-3)
