"""`build_tree`: checks its input and hands it to the builder of the tensors' device. No I/O."""

from __future__ import annotations

import torch

from jetspec_sglang.host.kernels import library
from jetspec_sglang.settings import RULES
from jetspec_sglang.tree.tensors import build_tensors
from jetspec_sglang.tree.tree import Tree

MAX_BUDGET = 65536
MAX_DEPTH = MAX_WIDTH = 255


def build_tree(
    topk_tokens: torch.Tensor,
    topk_logprobs: torch.Tensor,
    budget: int,
    rule: str = "best_first",
) -> Tree:
    """One draft tree per request from the head's candidates of every depth.

    Args:
        topk_tokens: int64 [bs, D, W], candidates of depth 1..D, distinct within a depth; D and W
            up to 255.
        topk_logprobs: float32 [bs, D, W], descending in W. -inf marks "no candidate"; values
            above 0 (rounding) count as 0.
        budget: nodes per tree, root included, 1 to 65536.
        rule: `best_first` ranks nodes by score, then depth, parent's rank and sibling index
            (trees of all budgets are nested); `accum_logp` visits them in that order and adds
            all W children of each (the JetSpec release's rule); `chain` is the rank-1 path.

    Raises:
        ValueError: on a wrong shape, dtype, device, budget or rule; for CPU tensors also on NaN
            and on log-probabilities that do not descend. On other devices the values are not
            read (no host sync) and NaN counts as -inf.
    """
    _check(topk_tokens, topk_logprobs, budget, rule)
    if topk_tokens.device.type != "cpu":
        return build_tensors(topk_tokens, topk_logprobs, budget, rule)
    fields = library.build_tree(topk_tokens, topk_logprobs, budget, RULES.index(rule))
    if fields is None:
        raise ValueError(_bad_value(topk_logprobs))
    return Tree(*fields)


def _check(tokens: torch.Tensor, logprobs: torch.Tensor, budget: int, rule: str) -> None:
    if tokens.ndim != 3:
        raise ValueError(f"topk_tokens has shape {tuple(tokens.shape)}: it must be [bs, D, W]")
    if logprobs.shape != tokens.shape:
        raise ValueError(
            f"topk_logprobs has shape {tuple(logprobs.shape)}: it must be that of topk_tokens, "
            f"{tuple(tokens.shape)}"
        )
    if tokens.dtype != torch.int64:
        raise ValueError(f"topk_tokens is {tokens.dtype}: it must be torch.int64")
    if logprobs.dtype != torch.float32:
        raise ValueError(f"topk_logprobs is {logprobs.dtype}: it must be torch.float32")
    if logprobs.device != tokens.device:
        raise ValueError(
            f"topk_logprobs is on {logprobs.device}: topk_tokens is on {tokens.device}"
        )
    if tokens.shape[1] > MAX_DEPTH or tokens.shape[2] > MAX_WIDTH:
        raise ValueError(
            f"topk_tokens has shape {tuple(tokens.shape)}: D and W may be {MAX_DEPTH} at most"
        )
    if type(budget) is not int or not 1 <= budget <= MAX_BUDGET:
        raise ValueError(f"budget={budget!r}: it must be an integer between 1 and {MAX_BUDGET}")
    if rule not in RULES:
        raise ValueError(f"rule={rule!r}: it must be one of {', '.join(RULES)}")


def _bad_value(logprobs: torch.Tensor) -> str:
    usable = logprobs < torch.inf
    usable[:, :, 1:] &= logprobs[:, :, 1:] <= logprobs[:, :, :-1]
    i, depth, sibling = (~usable).nonzero()[0].tolist()
    return (
        f"topk_logprobs[{i}, {depth}, {sibling}] is {float(logprobs[i, depth, sibling])}: "
        "log-probabilities must be numbers below inf that descend along the last dimension"
    )
