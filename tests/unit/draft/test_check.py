"""`check_head`: a head beside its target, by their config files alone."""

import json

import pytest
import torch
from safetensors.torch import save_file

from jetspec_sglang.draft.check import check_head
from jetspec_sglang.draft.checkpoint import expected_tensors
from tests.unit.draft.helpers import tiny_config


@pytest.fixture
def head(tmp_path):
    config = tiny_config()
    folder = tmp_path / "head"
    folder.mkdir()
    tensors = {name: torch.zeros(shape) for name, shape in expected_tensors(config).items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


def target(tmp_path, **changes):
    folder = tmp_path / "target"
    folder.mkdir()
    sizes = {"hidden_size": 16, "vocab_size": 40, "num_hidden_layers": 6, **changes}
    (folder / "config.json").write_text(json.dumps(sizes))
    return str(folder)


def test_a_head_for_its_target(head, tmp_path):
    check_head(str(head), target(tmp_path))


def test_a_head_for_another_target(head, tmp_path):
    with pytest.raises(ValueError, match="hidden_size: the head was made for 16, the target has 8"):
        check_head(str(head), target(tmp_path, hidden_size=8))


def test_text_sizes_of_a_composite_target(head, tmp_path):
    text = {"hidden_size": 16, "vocab_size": 41, "num_hidden_layers": 6}
    with pytest.raises(ValueError, match="vocab_size"):
        check_head(str(head), target(tmp_path, hidden_size=999, text_config=text))


def test_a_target_that_is_no_folder_is_not_looked_at(head):
    check_head(str(head), "some/model")


def test_the_draft_vocabulary_is_read(head):
    (head / "draft_vocab_ids.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="draft_vocab_ids"):
        check_head(str(head), None)
