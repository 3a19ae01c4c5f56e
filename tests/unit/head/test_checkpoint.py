"""Head folders: names and shapes, damage, and the draft vocabulary."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from jetspec_sglang.head.checkpoint import (
    check_checkpoint,
    expected_tensors,
    load_draft_vocab,
    load_tensors,
    not_finite,
    resolve_head,
    tensor_findings,
)
from jetspec_sglang.head.finding import HeadError
from tests.unit.head.helpers import tiny_config


def tensors(config, dtype=torch.bfloat16):
    return {
        name: torch.zeros(shape, dtype=dtype) for name, shape in expected_tensors(config).items()
    }


def test_the_release_has_58_tensors_and_its_published_size():
    config = tiny_config(
        num_hidden_layers=5, hidden_size=4096, intermediate_size=12288, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=151936, num_target_layers=36,
        dflash_config={
            "causal_head": True, "mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33],
        },
    )  # fmt: skip
    shapes = expected_tensors(config)
    assert len(shapes) == 58
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 1_048_626_432


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_good_folder(tmp_path, dtype):
    config = tiny_config()
    save_file(tensors(config, dtype), tmp_path / "model.safetensors")
    assert load_tensors(tmp_path, config).keys() == expected_tensors(config).keys()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_are_named(tmp_path, value):
    held = tensors(tiny_config())
    save_file(held, tmp_path / "model.safetensors")
    assert not_finite(tmp_path) == []
    broken = ["fc.weight", "hidden_norm.weight", "layers.0.mlp.up_proj.weight", "norm.weight"]
    for name in broken:
        held[name].view(-1)[-1] = value
    save_file(held, tmp_path / "model.safetensors")
    found = not_finite(tmp_path)
    assert [finding.field for finding in found] == broken
    assert str(found[0]) == "fc.weight: holds NaN or infinite values"


def test_every_fault_is_named(tmp_path):
    config = tiny_config()
    held = tensors(config)
    del held["norm.weight"]
    held["model.norm.weight"] = torch.zeros(16)
    held["fc.weight"] = torch.zeros(16, 16)
    held["hidden_norm.weight"] = torch.zeros(16, dtype=torch.int32)
    save_file(held, tmp_path / "model.safetensors")
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the parts are checked below
        check_checkpoint(tmp_path, config)
    for part in (
        "norm.weight: missing, wanted [16]",
        "model.norm.weight: unexpected",
        "fc.weight: has shape [16, 16], wanted [16, 48]",
        "hidden_norm.weight: has dtype I32",
    ):
        assert part in str(error.value)


def test_two_files_may_share_the_tensors_but_not_one_tensor(tmp_path):
    config = tiny_config()
    names = sorted(held := tensors(config))
    save_file({name: held[name] for name in names[:5]}, tmp_path / "a.safetensors")
    save_file({name: held[name] for name in names[5:]}, tmp_path / "b.safetensors")
    check_checkpoint(tmp_path, config)
    save_file(held, tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match="in two files"):
        check_checkpoint(tmp_path, config)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_a_truncated_file(tmp_path, keep):
    config = tiny_config()
    path = tmp_path / "model.safetensors"
    save_file(tensors(config), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="truncated or damaged"):
        check_checkpoint(tmp_path, config)


def test_pickled_weights_are_refused(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(HeadError, match=r"pytorch_model\.bin: pickled weights are refused"):
        check_checkpoint(tmp_path, tiny_config())


@pytest.mark.parametrize(
    "name", ["embed_tokens.weight", "model.embed_tokens.weight", "lm_head.weight"]
)
def test_tensors_of_the_target_are_refused_by_name(tmp_path, name):
    config = tiny_config()
    save_file(tensors(config) | {name: torch.zeros(40, 16)}, tmp_path / "model.safetensors")
    [finding] = tensor_findings(tmp_path, config)
    assert (finding.code, finding.field) == ("tensor_unexpected", name)
    assert "the target's own" in finding.allowed
    assert finding.remedy == f"export the head without {name}"


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def test_weights_that_git_lfs_has_not_fetched(tmp_path):
    (tmp_path / "model.safetensors").write_text(POINTER)
    (tmp_path / "draft_vocab_ids.npy").write_text(POINTER)
    for read in (
        lambda: check_checkpoint(tmp_path, tiny_config()),
        lambda: load_draft_vocab(tmp_path, 40),
    ):
        with pytest.raises(HeadError, match="is a Git LFS pointer") as error:
            read()
        assert error.value.findings[0].remedy == f"run `git lfs pull` in {tmp_path}"


def test_resolve_head(tmp_path):
    (tmp_path / "sub").mkdir()
    assert resolve_head(tmp_path) == tmp_path
    assert resolve_head(f"{tmp_path}::sub") == tmp_path / "sub"
    with pytest.raises(HeadError, match="no folder other"):
        resolve_head(f"{tmp_path}::other")
    with pytest.raises(HeadError, match="not a hub id"):
        resolve_head("/nowhere/at/all")
    with pytest.raises(ValueError, match=r"may not contain"):
        resolve_head(f"{tmp_path}::../x")


def test_resolve_head_downloads_a_hub_id(tmp_path, monkeypatch):
    asked = {}

    def download(repo, allow_patterns):
        asked.update(repo=repo, patterns=allow_patterns)
        (tmp_path / "b16").mkdir()
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert resolve_head("someone/head::b16") == tmp_path / "b16"
    assert asked["repo"] == "someone/head"
    assert "b16/config.json" in asked["patterns"]


def test_resolve_head_offline(monkeypatch):
    def download(repo, allow_patterns):
        raise OSError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(HeadError, match="the hub did not provide it: offline"):
        resolve_head("someone/head")


def test_draft_vocab(tmp_path):
    assert load_draft_vocab(tmp_path, 40) is None
    np.save(tmp_path / "draft_vocab_ids.npy", np.array([0, 3, 39], dtype=np.uint16))
    ids = load_draft_vocab(tmp_path, 40)
    assert ids.dtype == np.int64
    assert ids.tolist() == [0, 3, 39]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1, 2]]), "vector of integers"),
        (np.array([], dtype=np.int64), "non-empty"),
        (np.array([1.0, 2.0]), "vector of integers"),
        (np.array([0, 40]), "reach from 0 to 40, allowed 0 to 39"),
        (np.array([-1, 4]), "reach from -1"),
        (np.array([2, 2]), "without duplicates"),
        (np.array([3, 2]), "ascending"),
        (np.array([{"a": 1}], dtype=object), "not a plain NumPy array"),
    ],
)
def test_bad_draft_vocab(tmp_path, array, message):
    np.save(tmp_path / "draft_vocab_ids.npy", array)
    with pytest.raises(ValueError, match=message):
        load_draft_vocab(tmp_path, 40)


def test_draft_vocab_that_is_no_array(tmp_path):
    (tmp_path / "draft_vocab_ids.npy").write_text(json.dumps([1, 2]))
    with pytest.raises(ValueError, match="not a plain NumPy array"):
        load_draft_vocab(tmp_path, 40)
