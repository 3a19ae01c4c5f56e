"""Offline evaluation of draft heads: τ of every rule and budget on the target's stored answers.

Contract: `evaluate` runs the target once and each head once over the answers (teacher forcing) and
replays the rounds; no server. Exact for temperature 0 when the answers are the target's own greedy
output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from jetspec_sglang.evaluation.acceptance import (
    END,
    Rounds,
    continuations,
    path_ranks,
    replay,
    tau_difference,
)
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training.responses import Responses
from jetspec_sglang.training.target import Recorder
from jetspec_sglang.tree import build_tree

BUDGETS = (2, 4, 8, 16, 32, 64, 128, 256)
RULES = ("chain", "accum_logp", "best_first")


@dataclass(slots=True)
class SetResult:
    """One head on one set of answers. Per depth: places scored, top-1 hits, top-W hits [D].

    `rounds` holds those of each answer, by rule and budget.
    """

    places: Tensor
    top1: Tensor
    top_w: Tensor
    rounds: dict[tuple[str, int], list[Rounds]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def empty(cls, depths: int) -> SetResult:
        return cls(torch.zeros(depths), torch.zeros(depths), torch.zeros(depths))

    def tau(self, rule: str, budget: int) -> float:
        return sum(self.rounds[rule, budget], Rounds()).tau

    def standard_error(self, rule: str, budget: int) -> float:
        """Of τ, over the answers."""
        return tau_difference(self.rounds[rule, budget])[1]

    def as_dict(self) -> dict[str, object]:
        return {
            "top1": [round(v, 4) for v in (self.top1 / self.places).tolist()],
            "top_w": [round(v, 4) for v in (self.top_w / self.places).tolist()],
            "tau": self._by_rule(self.tau),
            "tau_standard_error": self._by_rule(self.standard_error),
            "rounds": {
                f"{rule}-{b}": sum(answer.rounds for answer in answers)
                for (rule, b), answers in self.rounds.items()
            },
        }

    def _by_rule(self, value: Callable[[str, int], float]) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for rule, budget in self.rounds:
            found.setdefault(rule, {})[str(budget)] = round(value(rule, budget), 4)
        return found


def evaluate(
    heads: Mapping[str, HeadModel],
    recorders: Mapping[str, Recorder],
    answers: Responses,
    eos_ids: Sequence[int],
    *,
    budgets: Sequence[int] = BUDGETS,
    rules: Sequence[str] = RULES,
    width: int = 8,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, SetResult]:
    """Result of each head, by name. `recorders[name]` records the taps that head reads.

    Heads with one recorder share its pass of the target.
    """
    results = {name: SetResult.empty(head.config.depths) for name, head in heads.items()}
    for ids, anchors, finished in places(answers, eos_ids):
        if len(anchors):
            taps = {recorder: recorder(ids[None]).taps for recorder in set(recorders.values())}
            for name, head in heads.items():
                candidates = draft(head, taps[recorders[name]], ids, anchors, width)
                _add(results[name], candidates, ids, anchors, finished, budgets, rules)
        progress()
    return results


def places(answers: Responses, eos_ids: Sequence[int]) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """For each answer: token ids [L], positions to draft from [A], and whether the answer is
    complete."""
    for index in range(len(answers)):
        ids = torch.from_numpy(answers.sequence(index))
        anchors = torch.arange(int(answers.response_start[index]), len(ids) - 1)
        yield ids, anchors, int(ids[-1]) in eos_ids


@torch.no_grad()
def draft(
    head: HeadModel, taps: Tensor, ids: Tensor, anchors: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """The head's `width` best tokens and log-probs at every depth of every anchor: [A, D, W]."""
    block = head.mask_block(ids[anchors][None])
    top = head(taps, anchors[None], block)[0].float().topk(width, dim=-1)
    return head.ids(top.indices), top.values


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
            result.rounds[rule, budget].append(replay(accepted, depths, finished))
