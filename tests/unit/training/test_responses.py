"""Shards: what is written is read back, and damage is named."""

import numpy as np
import pytest

from jetspec_sglang.training.responses import Responses, join, load, pack, save, shards
from tests.unit.training.helpers import VOCAB, answers


def same(a: Responses, b: Responses) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("ids", "offsets", "response_start", "source")
    )


@pytest.mark.parametrize("top", [40, 70_000])
def test_round_trip(tmp_path, top):
    data = pack([[1, 2, top], [4, 5]], [1, 1], ["a", "bb"])
    save(data, tmp_path / "x.npz")
    assert same(load(tmp_path / "x.npz"), data)
    assert [file.name for file in tmp_path.iterdir()] == ["x.npz"]


def test_a_folder_is_its_shards_in_name_order(tmp_path):
    parts = [answers(2, seed) for seed in range(3)]
    for number in (2, 0, 1):
        save(parts[number], tmp_path / f"{number}.npz")
    assert [file.stem for file in shards(tmp_path)] == ["0", "1", "2"]
    assert same(load(tmp_path), join(parts))


def test_counts_are_of_the_answers_alone():
    data = pack([[1, 1, 2, 3], [1, 3, 3]], [2, 1], ["", ""])
    assert data.response_counts(5).tolist() == [0, 0, 1, 3, 0]


def test_take_and_digest():
    data = answers(5)
    part = data.take([3, 1])
    assert part.sequence(0).tolist() == data.sequence(3).tolist()
    assert part.prompt(1).tolist() == data.prompt(1).tolist()
    assert data.digest() == answers(5).digest() != part.digest()
    assert data.ids.max() < VOCAB


def test_faults_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such shard"):
        load(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError, match=r"no \.npz shard"):
        load(tmp_path)
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match=r"bad\.npz: not a shard"):
        load(tmp_path / "bad.npz")
    np.savez(tmp_path / "short.npz", ids=[1, 2], offsets=[0, 2], source=["a"])
    with pytest.raises(ValueError, match="response_start"):
        load(tmp_path / "short.npz")
    with pytest.raises(ValueError, match="response_start must be"):
        pack([[1, 2]], [3], ["a"])
