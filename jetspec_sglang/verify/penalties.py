"""Penalties at tree nodes, equal to what plain decoding applies after the node's own path.

SGLang's orchestrator counts one token per step and applies one vector to a whole verify batch. Here
each node's counts are its request's output tokens and the node's path after the anchor, so
frequency, presence and repetition penalties and min_new_tokens are exact. Only the columns of
tokens that occur are touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import Req

    from jetspec_sglang.tree import Tree


def needs_penalties(reqs: Sequence[Req]) -> bool:
    """Whether any request asks for one."""
    return any(_counts_tokens(req) or req.sampling_params.min_new_tokens > 0 for req in reqs)


def apply_penalties(
    reqs: Sequence[Req], logits: torch.Tensor, tree: Tree, node_tokens: torch.Tensor
) -> None:
    """Adjust logits [bs * B, vocab] in place; node_tokens int64 [bs, B].

    Additive penalties come before the multiplicative one, as in SGLang's sampler.
    """
    budget = tree.budget
    parents = tree.parents.cpu()
    depths = tree.depths.cpu()
    tokens = node_tokens.cpu()
    for i, req in enumerate(reqs):
        rows = logits[i * budget : (i + 1) * budget]
        columns, counts = _path_counts(req.output_ids, tokens[i], parents[i])
        if _counts_tokens(req):
            _penalise(req, rows, columns.to(logits.device), counts.to(logits.device))
        if req.sampling_params.min_new_tokens > 0:
            _forbid_stops(req, rows, depths[i])


def _counts_tokens(req: Req) -> bool:
    params = req.sampling_params
    return (
        params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
        or params.repetition_penalty != 1.0
    )


def _path_counts(
    output_ids: Sequence[int], tokens: torch.Tensor, parents: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct tokens int64 [u] and their counts int64 [B, u] along each node's path.

    The anchor is the last output token, so the root's counts are the outputs' own.
    """
    outputs = torch.tensor(output_ids, dtype=torch.int64)
    columns, inverse = torch.unique(torch.cat([outputs, tokens[1:]]), return_inverse=True)
    base = torch.bincount(inverse[: outputs.numel()], minlength=columns.numel())
    counts = base.repeat(tokens.numel(), 1)
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            counts[node] = counts[parent]
            counts[node, inverse[outputs.numel() + node - 1]] += 1
    return columns, counts


def _penalise(req: Req, rows: torch.Tensor, columns: torch.Tensor, counts: torch.Tensor) -> None:
    params = req.sampling_params
    values = rows[:, columns]
    # SGLang sums a token's frequency penalty one occurrence at a time, in float32; the same
    # sum keeps a near-tie on the same side.
    steps = np.full(int(counts.max()), params.frequency_penalty, dtype=np.float32)
    sums = np.concatenate([np.zeros(1, np.float32), np.cumsum(steps, dtype=np.float32)])
    frequency = torch.from_numpy(sums).to(rows.device)[counts]
    seen = counts > 0
    additive = -frequency - torch.where(seen, params.presence_penalty, 0.0)
    values = values + additive.to(values.dtype)
    factor = torch.where(seen, params.repetition_penalty, 1.0).to(values.dtype)
    values = torch.where(values < 0, values * factor, values / factor)
    rows[:, columns] = values


def _forbid_stops(req: Req, rows: torch.Tensor, depths: torch.Tensor) -> None:
    """Stop tokens at nodes that come before `min_new_tokens` outputs."""
    early = len(req.output_ids) + depths < req.sampling_params.min_new_tokens
    stops = set(req.sampling_params.stop_token_ids or ()) | set(req.eos_token_ids or ())
    tokenizer = req.tokenizer
    if tokenizer is not None:
        stops |= set(tokenizer.additional_stop_token_ids or ())
        if tokenizer.eos_token_id is not None:
            stops.add(tokenizer.eos_token_id)
    if not early.any() or not stops:
        return
    row_index = early.nonzero().to(rows.device)
    rows[row_index, torch.tensor(sorted(stops), device=rows.device)[None, :]] = -torch.inf
