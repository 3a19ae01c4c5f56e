"""Calibrated scores: how likely a candidate is, given its depth, its rank and the path to it.

A Platt scaling per depth: the candidate's log-odds get a slope and an offset that depend on how many
tokens of the path are not their depth's best ("off-argmax": 0, 1, 2 or more), and an offset for
its rank. Fitted by likelihood on places whose path the candidates hold.

Contract: pure. Names in shapes: A anchors, D depths, W candidates, S states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from jetspec_sglang.evaluation.acceptance import END

OFF_STATES = 3
"""Paths with 0, 1, and 2 or more off-argmax tokens."""
_PULL = 1e-4
"""Weight of the squared distance to leaving scores as they are: keeps unseen places there."""


@dataclass(frozen=True, slots=True)
class PlattScaling:
    """slope and shift [D, S], by depth and off-argmax tokens; by_rank [D, W]."""

    slope: Tensor
    shift: Tensor
    by_rank: Tensor

    @classmethod
    def fit(cls, tokens: Tensor, logprobs: Tensor, follows: Tensor, states: int) -> PlattScaling:
        """tokens, logprobs [A, D, W]; follows [A, D]; `states` 1 leaves the path out."""
        hits = tokens == follows[..., None]
        known, off = _paths(hits, follows, states)
        depths, width = tokens.shape[1:]
        slope = torch.ones(depths, states, dtype=torch.float64, requires_grad=True)
        shift = torch.zeros(depths, states, dtype=torch.float64, requires_grad=True)
        by_rank = torch.zeros(depths, width, dtype=torch.float64, requires_grad=True)
        places = [(off == state) & known for state in range(states)]
        odds, truth = log_odds(logprobs), hits.double()
        optimizer = torch.optim.LBFGS(
            [slope, shift, by_rank], max_iter=80, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimizer.zero_grad()
            total = _PULL * ((slope - 1).square().sum() + shift.square().sum())
            total = total + _PULL * by_rank.square().sum()
            for state, chosen in enumerate(places):
                z = slope[:, state, None] * odds + shift[:, state, None] + by_rank
                error = F.binary_cross_entropy_with_logits(
                    z[chosen], truth[chosen], reduction="sum"
                )
                total = total + error / known.sum()
            total.backward()
            return total

        optimizer.step(loss)
        return cls(slope.detach(), shift.detach(), by_rank.detach())

    def __call__(self, logprobs: Tensor, state: int) -> Tensor:
        """Calibrated log-probabilities [A, D, W] after a path in `state`."""
        z = self.slope[:, state, None] * log_odds(logprobs) + self.shift[:, state, None]
        return F.logsigmoid(z + self.by_rank)


class CalibratedDraft:
    """One anchor's candidates as `Candidates`; a state is (depth, off-argmax tokens)."""

    def __init__(self, tokens: Tensor, logprobs: Sequence[Tensor]) -> None:
        """tokens [D, W]; logprobs by state, each [D, W] in the order of `tokens`."""
        self.best = tokens[:, 0].tolist()
        self.sorted = []
        for scores in logprobs:
            ordered, order = scores.sort(dim=-1, descending=True, stable=True)
            self.sorted.append((tokens.gather(-1, order).tolist(), ordered.tolist()))

    def root(self) -> tuple[int, int]:
        return 0, 0

    def after(self, state: tuple[int, int]) -> tuple[list[int], list[float]] | None:
        depth, off = state
        if depth == len(self.best):
            return None
        tokens, logprobs = self.sorted[off]
        return tokens[depth], logprobs[depth]

    def child(self, state: tuple[int, int], sibling: int) -> tuple[int, int]:
        depth, off = state
        off += self.sorted[off][0][depth][sibling] != self.best[depth]
        return depth + 1, min(off, len(self.sorted) - 1)


def log_odds(logprobs: Tensor) -> Tensor:
    """log(p / (1 - p)) in float64, p kept below 1 - 1e-6."""
    p = logprobs.double().clamp(max=-1e-6)
    return p - torch.log1p(-p.exp())


def reliability(
    tokens: Tensor, logprobs: Tensor, follows: Tensor
) -> list[list[tuple[float, float, int]]]:
    """[S][D] of (share of rank-1 hits, mean rank-1 probability, places), by off-argmax tokens."""
    hits = tokens == follows[..., None]
    known, off = _paths(hits, follows, OFF_STATES)
    found = []
    for state in range(OFF_STATES):
        row = []
        for depth in range(tokens.shape[1]):
            chosen = known[:, depth] & (off[:, depth] == state)
            hit = float(hits[chosen, depth, 0].double().mean())
            row.append((hit, float(logprobs[chosen, depth, 0].exp().mean()), int(chosen.sum())))
        found.append(row)
    return found


def _paths(hits: Tensor, follows: Tensor, states: int) -> tuple[Tensor, Tensor]:
    """Whether the candidates hold the true path so far, and its off-argmax tokens; both [A, D]."""
    held = hits.any(dim=-1)
    off_best = held & ~hits[..., 0]
    start = torch.ones(len(hits), 1, dtype=torch.bool)
    known = torch.cat((start, held[:, :-1].cumprod(dim=1).bool()), dim=1) & (follows != END)
    none = torch.zeros(len(hits), 1, dtype=torch.int64)
    off = torch.cat((none, off_best[:, :-1].long().cumsum(dim=1)), dim=1)
    return known, off.clamp(max=states - 1)
