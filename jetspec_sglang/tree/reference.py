"""The tree rules in plain Python: the definition. Every faster builder must equal it bit for bit.

Scores are float32 sums taken in path order (paper arXiv 2606.18394 §3: a node's score is the
sum of log-probabilities along its path). A log-probability above 0 counts as 0, one of -inf is
no candidate. No I/O.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
import torch

from jetspec_sglang.tree.tree import Tree

Node = tuple[int, int, int, np.float32]  # token, parent rank, depth, score


def build_reference(
    topk_tokens: torch.Tensor, topk_logprobs: torch.Tensor, budget: int, rule: str
) -> Tree:
    """As `build_tree`, one request and one node at a time."""
    grow = {"best_first": best_first, "accum_logp": accum_logp, "chain": chain}[rule]
    logprobs = topk_logprobs.clamp(max=0).numpy()
    trees = [grow(t, lp, budget) for t, lp in zip(topk_tokens.tolist(), logprobs, strict=True)]
    padded = [nodes + [(0, -1, 0, np.float32(-np.inf))] * (budget - len(nodes)) for nodes in trees]
    column = [[[node[field] for node in nodes] for nodes in padded] for field in range(4)]
    shape = (len(trees), budget)
    tokens, parents, depths = (torch.tensor(c, dtype=torch.int64).view(shape) for c in column[:3])
    scores = torch.tensor(column[3], dtype=torch.float32).view(shape)
    return Tree(tokens, parents, depths, scores, torch.tensor([len(t) for t in trees]).long())


def visits(logprobs: np.ndarray, limit: int) -> list[tuple[int, int, int, np.float32]]:
    """The best `limit` nodes as (sibling, parent's visit, depth, score), best first.

    Order: score descending, then depth, the parent's own place, and sibling index ascending.
    Popping a node admits its next sibling and its first child; neither can precede it.
    """
    depth_limit, width = logprobs.shape
    order: list[tuple[int, int, int, np.float32]] = []
    heap = [(np.float32(0), 0, -1, 0)]  # -score, depth, parent's visit, sibling

    def admit(depth: int, parent: int, sibling: int) -> None:
        if depth == 0 or depth > depth_limit or sibling == width:
            return
        score = order[parent][3] + logprobs[depth - 1, sibling]
        if score > -np.inf:
            heappush(heap, (-score, depth, parent, sibling))

    while heap and len(order) < limit:
        cost, depth, parent, sibling = heappop(heap)
        order.append((sibling, parent, depth, np.float32(0) - cost))
        admit(depth, parent, sibling + 1)
        admit(depth + 1, len(order) - 1, 0)
    return order


def best_first(tokens: list[list[int]], logprobs: np.ndarray, budget: int) -> list[Node]:
    """Rank = place in best-first order."""
    return [
        (tokens[depth - 1][sibling] if depth else 0, parent, depth, score)
        for sibling, parent, depth, score in visits(logprobs, budget)
    ]


def accum_logp(tokens: list[list[int]], logprobs: np.ndarray, budget: int) -> list[Node]:
    """The release's rule: visit best-first, add all W children of each; rank = order of adding."""
    nodes: list[Node] = [(0, -1, 0, np.float32(0))]
    rank = {(-1, 0): 0}  # (parent's visit, sibling) -> rank
    for visit, (sibling, parent, depth, score) in enumerate(visits(logprobs, budget)):
        for child in range(logprobs.shape[1] if depth < logprobs.shape[0] else 0):
            child_score = score + logprobs[depth, child]
            if child_score > -np.inf and len(nodes) < budget:
                rank[visit, child] = len(nodes)
                nodes.append((tokens[depth][child], rank[parent, sibling], depth + 1, child_score))
    return nodes


def chain(tokens: list[list[int]], logprobs: np.ndarray, budget: int) -> list[Node]:
    """The rank-1 path."""
    return accum_logp([t[:1] for t in tokens], logprobs[:, :1], budget)
