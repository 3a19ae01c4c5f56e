"""Offline evaluation of draft heads: τ of every rule and budget on the target's stored answers.

Contract: `evaluate` runs the target once and each head once over the answers (teacher forcing) and
replays the rounds; no server. Exact for temperature 0 when the answers are the target's own greedy
output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from jetspec_sglang.bench.acceptance import END, Rounds, continuations, path_ranks, replay
from jetspec_sglang.draft.reference import ReferenceHead
from jetspec_sglang.training.responses import Responses
from jetspec_sglang.training.target import Recorder
from jetspec_sglang.tree import build_tree

BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)
RULES = ("chain", "accum_logp", "best_first")


@dataclass(slots=True)
class SetResult:
    """One head on one set of answers. Per depth: places scored, top-1 hits, top-W hits [D]."""

    places: Tensor
    top1: Tensor
    top_w: Tensor
    rounds: dict[tuple[str, int], Rounds] = field(default_factory=lambda: defaultdict(Rounds))

    @classmethod
    def empty(cls, depths: int) -> SetResult:
        return cls(torch.zeros(depths), torch.zeros(depths), torch.zeros(depths))

    def tau(self, rule: str, budget: int) -> float:
        return self.rounds[rule, budget].tau

    def as_dict(self) -> dict[str, object]:
        return {
            "top1": [round(v, 4) for v in (self.top1 / self.places).tolist()],
            "top_w": [round(v, 4) for v in (self.top_w / self.places).tolist()],
            "tau": {
                rule: {str(b): round(v.tau, 4) for (r, b), v in self.rounds.items() if r == rule}
                for rule in dict.fromkeys(rule for rule, _ in self.rounds)
            },
            "rounds": {f"{rule}-{b}": v.rounds for (rule, b), v in self.rounds.items()},
        }


def evaluate(
    heads: Mapping[str, ReferenceHead],
    recorders: Mapping[str, Recorder],
    answers: Responses,
    eos_ids: Sequence[int],
    *,
    budgets: Sequence[int] = BUDGETS,
    rules: Sequence[str] = RULES,
    width: int = 8,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, SetResult]:
    """Result of each head, by name. `recorders[name]` records the taps that head reads."""
    results = {name: SetResult.empty(head.config.depths) for name, head in heads.items()}
    for index in range(len(answers)):
        ids = torch.from_numpy(answers.sequence(index))
        anchors = torch.arange(int(answers.response_start[index]), len(ids) - 1)
        if len(anchors):
            finished = int(ids[-1]) in eos_ids
            for name, head in heads.items():
                taps = recorders[name](ids[None]).taps
                candidates = draft(head, taps, ids, anchors, width)
                _add(results[name], candidates, ids, anchors, finished, budgets, rules)
        progress()
    return results


@torch.no_grad()
def draft(
    head: ReferenceHead, taps: Tensor, ids: Tensor, anchors: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """The head's `width` best tokens and log-probs at every depth of every anchor: [A, D, W]."""
    block = head.mask_block(ids[anchors][None])
    top = head(taps, anchors[None], block)[0].float().topk(width, dim=-1)
    tokens = top.indices if head.draft_vocab is None else head.draft_vocab[top.indices]
    return tokens, top.values


def _add(
    result: SetResult,
    candidates: tuple[Tensor, Tensor],
    ids: Tensor,
    anchors: Tensor,
    finished: bool,
    budgets: Sequence[int],
    rules: Sequence[str],
) -> None:
    tokens, logprobs = candidates
    depths = tokens.shape[1]
    follows = continuations(ids, anchors, depths)
    hits = tokens == follows[..., None]
    result.places += (follows != END).sum(dim=0)
    result.top1 += hits[..., 0].sum(dim=0)
    result.top_w += hits.any(dim=-1).sum(dim=0)
    for rule in rules:
        largest = path_ranks(build_tree(tokens, logprobs, max(budgets), rule), follows)
        for budget in budgets:
            ranks = largest
            if rule == "accum_logp" and budget != max(budgets):  # the other rules are nested
                ranks = path_ranks(build_tree(tokens, logprobs, budget, rule), follows)
            accepted = (ranks < budget).sum(dim=1).numpy()
            result.rounds[rule, budget] += replay(accepted, depths, finished)
