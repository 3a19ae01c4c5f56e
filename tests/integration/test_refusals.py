"""Faults at start-up: each one clear refusal that names what is wrong, before any loading."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from jetspec_sglang import embedded
from tests.integration.conftest import HOST, REPOSITORY, SERVER, jetspec_flags
from tests.support.heads import TARGET, head_config, write_head
from tests.support.server import end, launch, tail
from tests.support.start_up import refusals

pytestmark = pytest.mark.integration

FLAGS = {
    "page_size": (("--page-size", "16"), ("page-size", "16", "1")),
    "lora": (("--enable-lora", "--lora-paths", "a=/nowhere"), ("lora",)),
    "steps": (("--speculative-num-steps", "3"), ("--speculative-num-steps 3", "1")),
    "budget_zero": (
        ("--speculative-num-draft-tokens", "0"), ("--speculative-num-draft-tokens 0", "1024"),
    ),
    "budget_huge": (
        ("--speculative-num-draft-tokens", "5000"),
        ("--speculative-num-draft-tokens 5000", "1024"),
    ),
    "width": (("--speculative-eagle-topk", "100"), ("--speculative-eagle-topk 100", "32")),
    "tensor_parallel": (("--tp-size", "2"), ("tp",)),
    "mixed_chunk": (("--enable-mixed-chunk",), ("mixed",)),
    "tokenizer_workers": (
        ("--tokenizer-worker-num", "2"), ("--tokenizer-worker-num 2", "allow 1", "plugins"),
    ),
    # SGLang's batch-invariant kernels need a GPU: seeds are not promised on the host.
    "deterministic": (("--enable-deterministic-inference",), ("deterministic", "jetspec_host")),
}  # fmt: skip
"""Extra flags, and what the error has to mention."""

TARGETS = {
    "qwen3_next": ("Qwen3NextForCausalLM", {}),
    "falcon_h1": ("FalconH1ForCausalLM", {}),
    "nemotron_h": ("NemotronHForCausalLM", {}),
    "lfm2": ("Lfm2ForCausalLM", {}),
    "mamba2": ("Mamba2ForCausalLM", {}),
    "granitemoehybrid": (
        "GraniteMoeHybridForCausalLM",
        {"num_hidden_layers": 2, "layer_types": ["mamba", "attention"]},
    ),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
    ),
}
"""Targets with layers that JETSPEC cannot serve: architecture, and what its config needs."""

SETTINGS = {
    "unknown_key": ({"bugdet": 8}, ("JETSPEC_SETTINGS", "bugdet", "budget")),
    "wrong_type": ({"budget": "8"}, ("JETSPEC_SETTINGS", "budget", "'8'")),
    "out_of_range": ({"budget": 0}, ("JETSPEC_SETTINGS", "budget", "0")),
    "above_launch_maximum": (
        {"table": {"8": 200}},
        ("JETSPEC_SETTINGS", "table.8 = 200", "1 to 64", "--speculative-num-draft-tokens"),
    ),
    "rule": ({"rule": "widest"}, ("JETSPEC_SETTINGS", "rule", "best_first")),
}


def broken_heads(folder: Path) -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Heads that cannot work, and what the error has to mention."""
    whole = write_head(folder / "whole", head_config(causal=True))

    def copy(name: str) -> Path:
        shutil.copytree(whole, folder / name)
        return folder / name

    def with_config(name: str, change: dict[str, Any]) -> Path:
        path = copy(name) / "config.json"
        raw = json.loads(path.read_text())
        raw["dflash_config"] |= change.pop("dflash_config", {})
        path.write_text(json.dumps(raw | change))
        return path.parent

    missing = copy("missing")
    tensors = load_file(missing / "model.safetensors")
    del tensors["layers.0.mlp.up_proj.weight"]
    save_file(tensors, missing / "model.safetensors", metadata={"format": "pt"})
    truncated = copy("truncated")
    data = (truncated / "model.safetensors").read_bytes()
    (truncated / "model.safetensors").write_bytes(data[: len(data) // 2])
    nan = copy("nan")
    tensors = load_file(nan / "model.safetensors")
    tensors["norm.weight"][3] = float("nan")
    save_file(tensors, nan / "model.safetensors", metadata={"format": "pt"})
    narrow = {**TARGET, "hidden_size": 288, "num_attention_heads": 9, "head_dim": 32}
    return {
        "hidden_size": (
            write_head(folder / "narrow", head_config(causal=True, **narrow)),
            ("hidden_size", "288", "576"),
        ),
        "other_target": (
            write_head(folder / "other", head_config(causal=True, num_target_layers=36)),
            ("num_hidden_layers", "36", "30"),
        ),
        "missing_tensor": (missing, ("missing", "layers.0.mlp.up_proj.weight")),
        "truncated_file": (truncated, ("truncated", "model.safetensors")),
        "nan": (nan, ("NaN", "norm.weight")),
        "contradiction": (
            with_config("contradiction", {"is_causal": False}),
            ("causal", "contradicts", "is_causal"),
        ),
        "tap_out_of_range": (
            with_config("taps", {"dflash_config": {"target_layer_ids": [1, 30]}}),
            ("target_layer_ids", "30"),
        ),
        "no_folder": (folder / "nowhere" / "at" / "all", ("nowhere",)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """Every case's answer, from one process."""
    broken = broken_heads(tmp_path_factory.mktemp("broken"))
    whole = broken["missing_tensor"][0].parent / "whole"
    base = ("--model-path", str(embedded.target_path()), *SERVER)
    # Later flags win, so the defaults above do not hide a case's own.
    cases = {name: ((*base, *jetspec_flags(head)), "") for name, (head, _) in broken.items()}
    cases |= {
        name: ((*base, *jetspec_flags(whole), *flags), "") for name, (flags, _) in FLAGS.items()
    }
    cases |= {
        name: ((*base, *jetspec_flags(whole)), json.dumps(settings))
        for name, (settings, _) in SETTINGS.items()
    }
    for kind, (architecture, fields) in TARGETS.items():
        folder = tmp_path_factory.mktemp(kind)
        raw = {"architectures": [architecture], "model_type": kind, **fields}
        (folder / "config.json").write_text(json.dumps(raw))
        cases[kind] = ((*base, *jetspec_flags(whole), "--model-path", str(folder)), "")
    cases["no_head"] = ((*base, "--speculative-algorithm", "JETSPEC"), "")
    cases["nothing_wrong"] = ((*base, *jetspec_flags(whole)), "")
    mentioned = {name: words for name, (_, words) in [*broken.items(), *FLAGS.items()]}
    mentioned |= {name: words for name, (_, words) in SETTINGS.items()}
    mentioned |= {
        kind: (architecture, "serve targets with full attention")
        for kind, (architecture, _) in TARGETS.items()
    }
    mentioned |= {"no_head": ("--speculative-draft-model-path",), "nothing_wrong": ()}
    found = refusals(list(cases.values()), {**HOST, "PYTHONPATH": str(REPOSITORY)})
    return {name: (answer, mentioned[name]) for name, answer in zip(cases, found, strict=True)}


def test_the_whole_head_passes(answers: dict[str, Any]) -> None:
    assert answers["nothing_wrong"][0] is None


@pytest.mark.parametrize(
    "name",
    [
        *(
            "hidden_size",
            "other_target",
            "missing_tensor",
            "truncated_file",
            "nan",
            "contradiction",
        ),
        *("tap_out_of_range", "no_folder", "no_head", *FLAGS, *SETTINGS, *TARGETS),
    ],
)
def test_refused_in_one_line(name: str, answers: dict[str, Any]) -> None:
    error, mentioned = answers[name]
    assert error is not None, "the server would start"
    for word in mentioned:
        assert word in error
    assert len(error.splitlines()) == 1, error


@pytest.mark.full
def test_the_server_exits(tmp_path: Path) -> None:
    """A real launch ends quickly, with an exit code and the reason last in its log."""
    head, mentioned = broken_heads(tmp_path)["contradiction"]
    log = tmp_path / "server.log"
    arguments = ["--model-path", str(embedded.target_path()), *SERVER, *jetspec_flags(head)]
    started = time.monotonic()
    process = launch(arguments, log, {**HOST, "JETSPEC_SETTINGS": ""})
    try:
        code = process.wait(300)
    finally:
        end(process)
    assert code != 0
    assert all(word in tail(log, 3) for word in mentioned)
    print(f"exit {code} after {time.monotonic() - started:.0f} s")
