"""The target's verdict on a tree: its own token at every node, and the path that matches it.

Contract: tensors in, tensors out, [bs, B] in rank order. Sampling parameters, penalties, grammars
and logit processors act at each node as they would in plain decoding after the node's path.
"""
