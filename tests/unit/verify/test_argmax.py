import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.verify.argmax import _slice_size, argmax


@given(
    rows=st.integers(0, 5),
    vocab=st.sampled_from([1, 31, 64, 127, 128, 960, 2 * 509, 49152 // 16]),
    levels=st.integers(1, 5),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 2**32),
)
def test_equals_torch_with_ties(rows, vocab, levels, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(levels, (rows, vocab), generator=generator).to(dtype)
    logits[logits == 0] = -torch.inf
    assert torch.equal(argmax(logits), torch.argmax(logits, dim=-1))


def test_nan_is_found_as_torch_finds_it():
    logits = torch.zeros(2, 1024)
    logits[0, 700] = logits[0, 900] = torch.nan
    logits[1, 3] = 1
    assert argmax(logits).tolist() == torch.argmax(logits, dim=-1).tolist() == [700, 3]


def test_takes_a_view_with_strides():
    logits = torch.randn(3, 2048)[:, ::2]
    assert torch.equal(argmax(logits), torch.argmax(logits, dim=-1))


@pytest.mark.parametrize(("vocab", "size"), [(49152, 512), (151936, 128), (50257, 0), (60, 0)])
def test_slices_of_known_vocabularies(vocab, size):
    assert _slice_size(vocab) == size
