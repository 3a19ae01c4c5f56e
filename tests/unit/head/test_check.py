"""`check_head`: a head beside its target, by their files alone; every finding in parts."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from jetspec_sglang.head.check import check_head, read_target
from jetspec_sglang.head.checkpoint import expected_tensors
from jetspec_sglang.head.finding import HeadError
from tests.unit.head.helpers import tiny_config

TARGET = {"hidden_size": 16, "vocab_size": 40, "num_hidden_layers": 6}


@pytest.fixture
def head(tmp_path):
    config = tiny_config()
    folder = tmp_path / "head"
    folder.mkdir()
    tensors = {name: torch.zeros(shape) for name, shape in expected_tensors(config).items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


def codes(report):
    return {finding.code for finding in report.findings}


def test_a_head_for_its_target(head):
    report = check_head(str(head), TARGET)
    assert report.findings == ()
    assert report.require().config == tiny_config()


def test_a_head_for_another_target(head):
    report = check_head(str(head), {**TARGET, "hidden_size": 8})
    assert report.head is None
    assert codes(report) == {"target_hidden_size"}
    with pytest.raises(HeadError, match="hidden_size: the head was made for 16, the target has 8"):
        report.require()


def test_text_sizes_of_a_composite_target(head):
    text = {**TARGET, "vocab_size": 41}
    assert codes(check_head(str(head), {"hidden_size": 999, "text_config": text})) == {
        "target_vocab_size"
    }


def test_every_fault_is_found_at_once(head):
    tensors = load_file(head / "model.safetensors")
    del tensors["norm.weight"]
    save_file(tensors | {"embed_tokens.weight": torch.zeros(40, 16)}, head / "model.safetensors")
    (head / "draft_vocab_ids.npy").write_bytes(b"nothing")
    report = check_head(str(head), {**TARGET, "vocab_size": 41})
    assert codes(report) == {
        *("target_vocab_size", "tensor_missing", "tensor_unexpected", "draft_vocab"),
    }
    with pytest.raises(HeadError) as error:
        report.require()
    assert "\n" not in str(error.value)
    assert error.value.findings == report.findings


def test_values_are_looked_at(head):
    tensors = load_file(head / "model.safetensors")
    tensors["norm.weight"][3] = float("nan")
    save_file(tensors, head / "model.safetensors")
    assert codes(check_head(str(head), TARGET)) == {"tensor_not_finite"}


def test_a_warning_does_not_stop_a_server(head):
    report = check_head(str(head), {**TARGET, "max_position_embeddings": 10**6})
    assert codes(report) == {"short_context"}
    assert report.require().warnings == report.findings


def test_a_head_that_is_nowhere():
    assert codes(check_head("/no/such/head", None)) == {"not_found"}


def test_a_target_that_is_no_folder_is_not_looked_at(head, tmp_path):
    assert read_target("some/model") is None
    assert read_target(None) is None
    (tmp_path / "config.json").write_text(json.dumps(TARGET))
    assert read_target(str(tmp_path)) == TARGET
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="one JSON object"):
        read_target(str(tmp_path))
