"""The number of draft-tree nodes that the target's own continuation accepts, without running
rounds.

Contract: pure. At temperature 0 the target's output does not depend on drafting, so one stored
greedy answer shows what every round would accept. A replay of the rounds over it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from jetspec_sglang.tree import Tree

END = -1
"""Marks places past the end of an answer among the continuations."""


def continuations(ids: Tensor, anchors: Tensor, depths: int) -> Tensor:
    """Tokens that follow each anchor of one sequence: int64 [A, depths], END past its end."""
    ahead = anchors[:, None] + torch.arange(1, depths + 1)
    return torch.where(ahead < len(ids), ids[ahead.clamp(max=len(ids) - 1)], END)


def path_ranks(tree: Tree, follows: Tensor) -> Tensor:
    """Rank of the node that matches `follows` [bs, D] at each depth: [bs, D]; B where none does.

    Ranks grow along a path, so the first B ranks hold exactly the path nodes with rank < B.
    """
    current = torch.zeros(len(follows), dtype=torch.int64)
    alive = torch.ones(len(follows), dtype=torch.bool)
    ranks = torch.full_like(follows, tree.budget)
    for depth in range(follows.shape[1]):
        match = (tree.parents == current[:, None]) & (tree.tokens == follows[:, depth, None])
        alive &= match.any(dim=1)
        current = match.to(torch.int8).argmax(dim=1)
        ranks[alive, depth] = current[alive]
    return ranks


@dataclass(frozen=True, slots=True)
class Rounds:
    """Committed tokens and the number of rounds. Values can be added."""

    tokens: int = 0
    rounds: int = 0

    def __add__(self, other: Rounds) -> Rounds:
        return Rounds(self.tokens + other.tokens, self.rounds + other.rounds)

    @property
    def tau(self) -> float:
        return self.tokens / self.rounds if self.rounds else float("nan")


def tau_difference(
    one: Sequence[Rounds], other: Sequence[Rounds] | None = None
) -> tuple[float, float]:
    """τ of `one` less τ of `other` (without it, τ itself), and its standard error.

    Both hold the rounds of the same answers in the same order: answers are the independent draws,
    and what makes one of them easy for both cancels. The error is the ratio estimator's (each
    answer's share in τ to first order), NaN for fewer than two answers.
    """
    difference, shares = _linear(one)
    if other is not None:
        tau, subtracted = _linear(other)
        difference, shares = difference - tau, shares - subtracted
    count = len(one)
    if count < 2:
        return difference, float("nan")
    return difference, float(np.sqrt(np.sum(shares**2) * count / (count - 1)))


def _linear(answers: Sequence[Rounds]) -> tuple[float, np.ndarray]:
    """τ, and how much it moves with each answer; the moves sum to 0."""
    total = sum(answers, Rounds())
    moves = [answer.tokens - total.tau * answer.rounds for answer in answers]
    return total.tau, np.array(moves) / max(total.rounds, 1)


def replay(accepted: Sequence[int] | np.ndarray, depths: int, finished: bool) -> Rounds:
    """Decode one answer: `accepted[j]` nodes are accepted with response token j as the anchor.

    Anchor 0 comes from the prompt; the answer has len(accepted) + 1 tokens. An answer that was cut
    off (`finished` false) stops counting where a round could have run past the cut.
    """
    last = len(accepted)
    end = last if finished else last - depths
    at = tokens = rounds = 0
    while at < end:
        step = min(int(accepted[at]) + 1, last - at)
        at += step
        tokens += step
        rounds += 1
    return Rounds(tokens, rounds)
