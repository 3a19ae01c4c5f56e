"""Anchors and labels: inside the answer, right, and a pure function of seed and step."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.training.batches import PAD, Sampler, make_batch, rows
from tests.unit.training.helpers import answers


@given(step=st.integers(0, 50), anchors=st.integers(1, 40), seed=st.integers(0, 5))
def test_labels_are_the_tokens_that_follow_an_anchor_in_the_answer(step, anchors, seed):
    data = answers()
    sampler = Sampler(data, sequences=3, anchors=anchors, depths=4, seed=seed)
    indices, batch = sampler.batch(step)
    for row, index in enumerate(indices):
        sequence = data.sequence(index)
        assert batch.tokens[row, : len(sequence)].tolist() == sequence.tolist()
        real = [a for a in range(batch.anchors.shape[1]) if batch.labels[row, a, 0] != PAD]
        places = batch.anchors[row, real].tolist()
        assert len(set(places)) == len(places)
        assert len(places) == min(anchors, len(sequence) - 1 - data.response_start[index])
        for anchor, place in zip(real, places, strict=True):
            assert data.response_start[index] <= place < len(sequence) - 1
            follows = sequence[place + 1 : place + 5].tolist()
            assert batch.labels[row, anchor].tolist() == follows + [PAD] * (4 - len(follows))


def test_an_epoch_sees_every_sequence_once():
    sampler = Sampler(answers(12), sequences=3, anchors=2, depths=2)
    seen = np.concatenate([sampler.indices(step) for step in range(4)])
    assert sorted(seen) == list(range(12))
    again = np.concatenate([sampler.indices(step) for step in range(4, 8)])
    assert sorted(again) == list(range(12))
    assert again.tolist() != seen.tolist()


def test_a_batch_depends_on_the_step_alone():
    one, other = (Sampler(answers(), 3, 5, 3, seed=1) for _ in range(2))
    one.batch(0)
    for name in ("tokens", "anchors", "labels"):
        assert torch.equal(getattr(one.batch(7)[1], name), getattr(other.batch(7)[1], name))


def test_short_blocks_take_their_share():
    sampler = Sampler(answers(), 3, 5, depths=7, short_depths=4, short_share=0.6)
    depths = [sampler.step_depths(step) for step in range(500)]
    assert set(depths) == {4, 7}
    assert 0.5 < depths.count(4) / 500 < 0.7


def test_real_tokens_take_their_share_and_leave_something_to_score():
    sampler = Sampler(answers(), 3, 20, depths=4, real_share=0.5)
    given = torch.cat([sampler.batch(step)[1].given.flatten() for step in range(60)])
    assert set(given.tolist()) == {0, 1, 2, 3}
    assert 0.4 < float((given > 0).float().mean()) < 0.6
    plain = Sampler(answers(), 3, 20, depths=4).batch(0)[1]
    assert torch.equal(plain.scored, plain.labels != PAD)
    batch = sampler.batch(0)[1]
    assert torch.equal(batch.labels, plain.labels)
    assert int(batch.scored.sum()) < int(plain.scored.sum())
    assert not batch.scored[batch.distances < 0].any()


def test_rows_drop_padding():
    data = answers(4)
    places = [np.array([4]), np.array([5, 6]), np.array([4])]
    batch = make_batch(data, [0, 1, 2], places, [np.zeros(len(p)) for p in places], 2)
    part = rows(batch, slice(1, 2))
    assert part.tokens.shape == (1, data.lengths[1])
    assert part.anchor_tokens[0].tolist() == data.sequence(1)[[5, 6]].tolist()


def test_too_little_data_is_refused():
    with pytest.raises(ValueError, match="takes 20 sequences, the data has 12"):
        Sampler(answers(12), sequences=20, anchors=1, depths=1)
