"""Scoring of hidden rows: top-W tokens and normalised log-probabilities."""

import pytest
import torch
from torch import nn

from jetspec_sglang.round.scoring import Scorer


def head(vocab=20, hidden=6, padded=0):
    module = nn.Linear(hidden, vocab + padded, bias=False)
    module.org_vocab_size = vocab
    return module


def plain(weight):
    return lambda x: x @ weight.T


def test_the_whole_vocabulary_without_its_padding_is_scored():
    lm_head = head(padded=12)
    lm_head.weight.data[20:] = 100.0
    hidden = torch.randn(2, 3, 6)
    tokens, logprobs = Scorer(lm_head, 5, None, plain).top(hidden)
    expected = torch.log_softmax(hidden @ lm_head.weight[:20].T, dim=-1).topk(5)
    assert torch.equal(tokens, expected.indices)
    torch.testing.assert_close(logprobs, expected.values)


def test_a_draft_vocabulary_is_normalised_on_its_own_and_answers_with_target_ids():
    lm_head, ids = head(), torch.tensor([1, 4, 7, 13, 19])
    hidden = torch.randn(1, 2, 6)
    tokens, logprobs = Scorer(lm_head, 5, ids, plain).top(hidden)
    expected = torch.log_softmax(hidden @ lm_head.weight[ids].T, dim=-1)
    assert set(tokens[0, 0].tolist()) == set(ids.tolist())
    torch.testing.assert_close(logprobs.exp().sum(-1), torch.ones(1, 2))
    torch.testing.assert_close(logprobs, expected.sort(descending=True).values)


def test_more_candidates_than_ids_are_refused():
    with pytest.raises(ValueError, match=r"--speculative-eagle-topk 6.*5 ids"):
        Scorer(head(), 6, torch.arange(5), plain)
