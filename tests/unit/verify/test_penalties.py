"""Penalties at tree nodes against SGLang's own, fed the node's path token by token."""

from types import SimpleNamespace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.sampling.penaltylib import (
    BatchedFrequencyPenalizer,
    BatchedMinNewTokensPenalizer,
    BatchedPenalizerOrchestrator,
    BatchedPresencePenalizer,
    BatchedRepetitionPenalizer,
)

from jetspec_sglang.tree import build_tree
from jetspec_sglang.verify.penalties import apply_penalties, needs_penalties

VOCAB = 12
EOS = 2
coefficient = st.sampled_from([0.0, 0.5, -0.3, 1.7])


def request(outputs, frequency, presence, repetition, minimum):
    return SimpleNamespace(
        output_ids=list(outputs),
        eos_token_ids={EOS},
        tokenizer=SimpleNamespace(additional_stop_token_ids=None, eos_token_id=EOS),
        sampling_params=SimpleNamespace(
            frequency_penalty=frequency,
            presence_penalty=presence,
            repetition_penalty=repetition,
            min_new_tokens=minimum,
            stop_token_ids={5},
        ),
    )


@st.composite
def requests(draw):
    outputs = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12))
    return request(
        outputs,
        draw(coefficient),
        draw(coefficient),
        draw(st.sampled_from([1.0, 1.3, 0.8])),
        draw(st.sampled_from([0, 3, 9])),
    )


class Batch:
    """What the orchestrator asks of a batch (it keeps a weak reference)."""

    device = "cpu"

    def __init__(self, reqs):
        self.reqs = reqs


def plain_decoding(req, path, logits):
    """What SGLang's sampler is given after the outputs and the path, one step a token."""
    batch = Batch([req])
    orchestrator = BatchedPenalizerOrchestrator(
        VOCAB,
        batch,
        {
            BatchedFrequencyPenalizer,
            BatchedPresencePenalizer,
            BatchedRepetitionPenalizer,
            BatchedMinNewTokensPenalizer,
        },
    )
    for token in [*req.output_ids, *path]:
        orchestrator.cumulate_output_tokens(torch.tensor([token]))
    row = logits.clone()[None]
    additive = torch.zeros_like(row)
    orchestrator.accumulate_additive_penalties(additive)
    row += additive
    scaling = orchestrator.accumulate_scaling_penalties()
    if scaling is not None:
        row = torch.where(row < 0, row * scaling, row / scaling)
    return row[0]


def path_to(tree, tokens, i, node):
    path = []
    while tree.parents[i, node] >= 0:
        path.append(int(tokens[i, node]))
        node = int(tree.parents[i, node])
    return path[::-1]


@settings(max_examples=60)
@given(st.lists(requests(), min_size=1, max_size=3), st.integers(1, 10), st.integers(0, 10**6))
def test_a_node_is_penalised_as_plain_decoding_would_be_there(reqs, budget, seed):
    generator = torch.Generator().manual_seed(seed)
    bs, depth, width = len(reqs), 4, 3
    candidates = torch.stack(
        [torch.randperm(VOCAB, generator=generator)[:width] for _ in range(bs * depth)]
    ).view(bs, depth, width)
    scores = -torch.rand(bs, depth, width, generator=generator).sort(dim=-1).values
    tree = build_tree(candidates, scores, budget)
    tokens = tree.tokens.clone()
    tokens[:, 0] = torch.tensor([req.output_ids[-1] for req in reqs])
    logits = torch.randn(bs * budget, VOCAB, generator=generator)
    expected = logits.clone()
    for i, req in enumerate(reqs):
        for node in range(int(tree.sizes[i])):
            row = i * budget + node
            expected[row] = plain_decoding(req, path_to(tree, tokens, i, node), logits[row])

    if needs_penalties(reqs):
        apply_penalties(reqs, logits, tree, tokens)

    for i in range(bs):
        rows = slice(i * budget, i * budget + int(tree.sizes[i]))
        torch.testing.assert_close(logits[rows], expected[rows], rtol=0, atol=1e-6)


def test_requests_without_penalties_need_none():
    assert not needs_penalties([request([1], 0.0, 0.0, 1.0, 0)])
    assert needs_penalties([request([1], 0.0, 0.0, 1.0, 1)])
