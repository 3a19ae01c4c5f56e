"""Repeating a batch's sampling parameters per node, and greedy choice."""

import torch
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

from jetspec_sglang.verify.choice import choose_tokens, per_node


def info(greedy=False):
    return SamplingBatchInfo(
        temperatures=torch.tensor([[1.0], [0.5]]),
        top_ps=torch.tensor([1.0, 0.9]),
        top_ks=torch.tensor([1, 40]),
        min_ps=torch.tensor([0.0, 0.1]),
        is_all_greedy=greedy,
        is_any_greedy=True,
        need_top_p_sampling=True,
        need_top_k_sampling=True,
        need_min_p_sampling=True,
        vocab_size=7,
        sampling_seed=torch.tensor([3, 4]),
        logit_bias=torch.zeros(2, 7),
        acc_additive_penalties=torch.zeros(2, 7),
        device="cpu",
    )


def test_each_request_row_is_repeated_for_its_nodes():
    repeated = per_node(info(), 3)
    assert repeated.temperatures.flatten().tolist() == [1.0] * 3 + [0.5] * 3
    assert repeated.top_ks.tolist() == [1] * 3 + [40] * 3
    assert repeated.sampling_seed.tolist() == [3] * 3 + [4] * 3
    assert len(repeated) == 6


def test_what_was_applied_to_the_logits_is_not_applied_again():
    repeated = per_node(info(), 3)
    for name in (
        "logit_bias",
        "acc_additive_penalties",
        "acc_scaling_penalties",
        "grammar_mask",
        "custom_logit_processor",
    ):
        assert getattr(repeated, name) is None


def test_greedy_takes_the_argmax_and_never_samples():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 5.0], [1.0, 4.0, 0.0]])

    def sampler(*_):
        raise AssertionError("greedy batches are not sampled")

    chosen = choose_tokens(sampler, info(greedy=True), logits, torch.zeros(4), 2, False)
    assert chosen.tolist() == [[1, 0], [2, 1]]


def test_sampling_sees_one_row_per_node_and_can_keep_the_logits():
    logits = torch.randn(4, 7)
    kept = logits.clone()

    def sampler(output, node_info, *_):
        assert len(node_info) == output.next_token_logits.shape[0] == 4
        output.next_token_logits.zero_()
        return torch.arange(4, dtype=torch.int32)

    chosen = choose_tokens(sampler, info(), logits, torch.zeros(4), 2, True)
    assert chosen.tolist() == [kept[:2].argmax(-1).tolist(), [2, 3]]
    assert chosen.dtype == torch.int64
    assert torch.equal(logits, kept)


def test_a_greedy_request_beside_sampled_ones_takes_the_first_of_equal_logits():
    logits = torch.zeros(4, 7)
    logits[:, [2, 5]] = 1.0

    def sampler(output, *_):
        output.next_token_logits.zero_()
        return torch.full((4,), 5)

    chosen = choose_tokens(sampler, info(), logits, torch.zeros(4), 2, False)
    assert chosen.tolist() == [[2, 2], [5, 5]]
