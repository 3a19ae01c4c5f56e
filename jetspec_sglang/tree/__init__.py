"""Draft trees: build them from a head's per-depth candidates, cut them to a budget."""

from jetspec_sglang.tree.build import RULES, build_tree
from jetspec_sglang.tree.tree import Tree

__all__ = ["RULES", "Tree", "build_tree"]
