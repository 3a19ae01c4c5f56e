"""The accept rule: follow the target's own token at every node. Pure, no I/O.

`target_tokens` holds, for every node, the token the target itself chooses after that node's
path: its argmax at T=0, one draw from its (filtered) distribution at T>0. The walk starts at
the root and follows the child that carries the target's token, as far as there is one. Each
committed token is then the target's own choice given exactly the tokens before it, so the rule
is lossless and needs no draft probabilities (the released code's rule; it equals the sequential
rejection of paper arXiv 2606.18394 Eq. 12 for deterministic candidates).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from jetspec_sglang.host.kernels import library
from jetspec_sglang.tree import Tree
from jetspec_sglang.verify.accept_tensors import accept_tensors


@dataclass(frozen=True, slots=True)
class Accepted:
    """The tokens that a round commits, per request. P = depth_limit + 1 columns."""

    path: torch.Tensor  # int64 [bs, P]: ranks along the accepted path from the root, then -1
    lens: torch.Tensor  # int32 [bs]: nodes on the path, root included = tokens committed
    tokens: torch.Tensor  # int64 [bs, P]: committed tokens, the bonus last, then 0
    bonus: torch.Tensor  # int64 [bs]: the last committed token, the next anchor


def accept(tree: Tree, target_tokens: torch.Tensor, depth_limit: int) -> Accepted:
    """Walk every request's tree.

    Args:
        tree: siblings must carry distinct tokens, as a top-W gives them.
        target_tokens: int64 [bs, B], on the tree's device.
        depth_limit: D of the lattice the tree was built from; fixes the output's width.

    Raises:
        ValueError: on a wrong shape, dtype or device, or a negative depth_limit.
    """
    if target_tokens.shape != tree.tokens.shape:
        raise ValueError(
            f"target_tokens has shape {tuple(target_tokens.shape)}: it must be that of the tree, "
            f"{tuple(tree.tokens.shape)}"
        )
    if target_tokens.dtype != torch.int64:
        raise ValueError(f"target_tokens is {target_tokens.dtype}: it must be torch.int64")
    if target_tokens.device != tree.tokens.device:
        raise ValueError(
            f"target_tokens is on {target_tokens.device}: the tree is on {tree.tokens.device}"
        )
    if depth_limit < 0:
        raise ValueError(f"depth_limit={depth_limit}: it must be at least 0")
    if target_tokens.device.type == "cpu":
        fields = library.accept(tree.tokens, tree.parents, tree.sizes, target_tokens, depth_limit)
    else:
        fields = accept_tensors(tree, target_tokens, depth_limit)
    return Accepted(*fields)
