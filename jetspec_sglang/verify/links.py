"""A tree as first-child and next-sibling links, as SGLang's `GrammarTree.from_host` takes it."""

from __future__ import annotations

import torch

from jetspec_sglang.host.kernels import library
from jetspec_sglang.tree import Tree


def child_links(tree: Tree) -> tuple[torch.Tensor, torch.Tensor]:
    """(next_token, next_sibling), int64 [bs, B] on the host: the rank of a node's first child
    and of its next sibling, -1 where there is none (always so for padding).

    Raises:
        ValueError: if the tree is not on the CPU, where grammars are matched.
    """
    if tree.parents.device.type != "cpu":
        raise ValueError(f"tree is on {tree.parents.device}: child_links takes a tree on the CPU")
    return library.child_links(tree.parents, tree.sizes)
