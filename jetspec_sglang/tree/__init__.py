"""Draft trees: build them from a head's candidates of every depth.

Contract: pure functions on tensors; every builder gives the same bits as `reference`. Trees of one
rule are nested: the first B nodes are the tree of budget B.
"""

from jetspec_sglang.settings import RULES
from jetspec_sglang.tree.build import build_tree
from jetspec_sglang.tree.tree import Tree

__all__ = ["RULES", "Tree", "build_tree"]
