"""`choose_tokens`: the target's own token at every node of every tree.

The node's logits are changed as in SGLang's plain decoding, in the same order: penalties (per node,
its own path counted), the grammar's mask (per node), logit bias, custom logit processors (per
node), then SGLang's own sampler with the request's parameters repeated per node. With deterministic
inference the sampler is keyed by position, so a node draws what plain decoding would draw there.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput

from jetspec_sglang.verify.argmax import argmax
from jetspec_sglang.verify.penalties import apply_penalties, needs_penalties
from jetspec_sglang.verify.processors import apply_processors

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    from jetspec_sglang.tree import Tree


def adjust_logits(
    batch: ScheduleBatch,
    logits: torch.Tensor,
    tree: Tree,
    node_tokens: torch.Tensor,
    grammar_mask: Any | None,
) -> None:
    """Apply the batch's penalties, grammar, bias and processors in place.

    logits float [bs * B, vocab]; node_tokens int64 [bs, B] with the anchor in column 0.
    """
    info = batch.sampling_info
    budget = tree.budget
    if needs_penalties(batch.reqs):
        apply_penalties(batch.reqs, logits, tree, node_tokens)
    if grammar_mask is not None:
        grammar_mask.apply(logits)
    if info.logit_bias is not None:
        logits.view(len(batch.reqs), budget, -1).add_(info.logit_bias[:, None, :])
    if info.has_custom_logit_processor:
        apply_processors(batch, logits, tree, node_tokens)


def choose_tokens(
    sampler: torch.nn.Module,
    info: SamplingBatchInfo,
    logits: torch.Tensor,
    positions: torch.Tensor,
    budget: int,
    keep_logits: bool,
) -> torch.Tensor:
    """The target's token at every node, int64 [bs, B].

    logits [bs * B, vocab] after `adjust_logits`, overwritten when sampled unless `keep_logits`;
    positions int64 [bs * B]. T=0 (which SGLang stores as top_k=1) takes the argmax, as plain
    decoding does, beside sampled requests too: where logits are equal, as they often are in
    bfloat16, the sampler could take another one of the best.
    """
    best = argmax(logits).to(torch.int64).view(-1, budget)
    if info.is_all_greedy:
        return best
    output = LogitsProcessorOutput(next_token_logits=logits.clone() if keep_logits else logits)
    drawn = sampler(output, per_node(info, budget), False, [], [], positions)
    return torch.where(info.top_ks[:, None] == 1, best, drawn.to(torch.int64).view(-1, budget))


def per_node(info: SamplingBatchInfo, budget: int) -> SamplingBatchInfo:
    """The batch's sampling parameters with each request's row repeated `budget` times.

    What `adjust_logits` has applied already is switched off.
    """
    seed = info.sampling_seed
    return dataclasses.replace(
        info,
        temperatures=info.temperatures.repeat_interleave(budget, dim=0),
        top_ps=info.top_ps.repeat_interleave(budget),
        top_ks=info.top_ks.repeat_interleave(budget),
        min_ps=info.min_ps.repeat_interleave(budget),
        sampling_seed=None if seed is None else seed.repeat_interleave(budget),
        has_custom_logit_processor=False,
        custom_logit_processor=None,
        grammars=None,
        grammar_mask=None,
        logit_bias=None,
        acc_additive_penalties=None,
        acc_scaling_penalties=None,
        sampling_mask_batch_indices=None,
    )
