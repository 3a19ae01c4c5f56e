"""Measures the gain from drafts that depend on their branch: better scores, or a second pass.

In a released tree, every node uses the head's one distribution of its depth, whatever tokens lead
to it. Here the same greedy answers are replayed with distributions that depend on a node's path:
scores calibrated by depth, rank and off-argmax tokens (`platt`), or a second pass of the head
that holds the first nodes as real tokens (`second_pass`).

Contract: offline, exact at temperature 0 like `offline`; a draft is a `Candidates`, which says what
may follow any node. The server does not use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol

import torch
from torch import Tensor

from jetspec_sglang.bench.timing import Timing, measure
from jetspec_sglang.evaluation.acceptance import Rounds, continuations, replay, tau_difference
from jetspec_sglang.evaluation.offline import draft, places
from jetspec_sglang.evaluation.platt import OFF_STATES, CalibratedDraft, PlattScaling, reliability
from jetspec_sglang.evaluation.second_pass import ConditionedDraft, second_pass
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.host.kernels import linear, pack
from jetspec_sglang.training.responses import Responses
from jetspec_sglang.training.target import Recorder
from jetspec_sglang.tree import build_tree

BUDGETS = (8, 16, 32, 64)
WIDTH = 8
SIZES = ((4, 2), (8, 1), (8, 2), (16, 1), (16, 2), (16, 3))
"""Numbers of nodes, and of masks after each node, of the second passes to try."""
ONE_PASS = "one pass"
CALIBRATED = {"scores by depth and rank": 1, "scores by depth, rank and path": OFF_STATES}
"""Variants that calibrate, with the states of a path they tell apart."""
NOTE = (
    "τ, and its difference to one pass on the same answers in percent ± standard error. "
    "Calibrations are fitted on the other half of each set's own answers. A second pass of N nodes "
    "and M masks has N + (N - 1) M rows."
)

Rows = list[list[str]]
Results = dict[tuple[str, int], list[Rounds]]
"""Rounds of each answer, by variant and budget."""


class Candidates(Protocol):
    """One anchor's draft as a graph of states: a node's state decides what may follow it."""

    def root(self) -> Any: ...

    def after(self, state: Any) -> tuple[Sequence[int], Sequence[float]] | None:
        """Tokens and log-probabilities, best first; None where the draft ends."""

    def child(self, state: Any, sibling: int) -> Any:
        """The state after the token at place `sibling` of `after(state)`."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """The first pass over one answer."""

    ids: Tensor
    anchors: Tensor
    taps: Tensor
    """[1, L, T*H]."""
    tokens: Tensor
    """[A, D, W] int64, best first, like `logprobs`."""
    logprobs: Tensor
    finished: bool

    def follows(self, depths: int) -> Tensor:
        return continuations(self.ids, self.anchors, depths)


def path_ranks(candidates: Candidates, follows: Sequence[int], budget: int) -> list[int]:
    """Rank, in the best-first tree, of the node that matches `follows` at each depth.

    `budget` where none of the first `budget` nodes does. Ties go as in `tree.reference.visits`.
    """
    ranks = [budget] * len(follows)
    # -score, depth, parent's rank, sibling | parent's state and -score, whether on the path
    heap: list[tuple[Any, ...]] = [(0.0, 0, -1, 0, None, 0.0, True)]
    for rank in range(budget):
        if not heap:
            break
        cost, depth, parent, sibling, before, above, on_path = heappop(heap)
        if depth == 0:
            state = candidates.root()
        else:
            tokens, logprobs = candidates.after(before)  # type: ignore[misc]
            if sibling + 1 < len(tokens):
                cost_of_next = above - logprobs[sibling + 1]
                heappush(heap, (cost_of_next, depth, parent, sibling + 1, before, above, on_path))
            state = candidates.child(before, sibling)
            on_path = on_path and depth <= len(follows) and tokens[sibling] == follows[depth - 1]
            if on_path:
                ranks[depth - 1] = rank
        if (following := candidates.after(state)) is not None:
            heappush(heap, (cost - following[1][0], depth + 1, rank, 0, state, cost, on_path))
    return ranks


def drafts(
    head: HeadModel, recorder: Recorder, answers: Responses, eos_ids: Sequence[int]
) -> Iterator[Drafted]:
    """The first pass over each answer that has places to draft from."""
    for ids, anchors, finished in places(answers, eos_ids):
        if len(anchors):
            taps = recorder(ids[None]).taps
            yield Drafted(ids, anchors, taps, *draft(head, taps, ids, anchors, WIDTH), finished)


def compare(
    head: HeadModel,
    answers: Sequence[Drafted],
    *,
    budgets: Sequence[int] = BUDGETS,
    sizes: Sequence[tuple[int, int]] = SIZES,
    progress: Callable[[], None] = lambda: None,
) -> Results:
    """Every variant on every answer. Raises ValueError for fewer than two answers."""
    if len(answers) < 2:
        raise ValueError(f"{len(answers)} answers to draft from: calibration needs at least 2")
    deepest = head.config.depths + max((masks for _, masks in sizes), default=0)
    calibrations = {
        variant: [_fit(answers[1 - half :: 2], states) for half in (0, 1)]
        for variant, states in CALIBRATED.items()
    }
    results: Results = {}
    for index, answer in enumerate(answers):
        variants: dict[str, Callable[[int], Candidates]] = {ONE_PASS: _plain(answer)}
        for variant, halves in calibrations.items():
            variants[variant] = _calibrated(answer, halves[index % 2])
        variants |= _second(head, answer, sizes)
        follows = answer.follows(deepest).tolist()
        for variant, candidates in variants.items():
            ranks = torch.tensor(
                [path_ranks(candidates(a), path, max(budgets)) for a, path in enumerate(follows)]
            )
            for budget in budgets:
                accepted = (ranks < budget).sum(dim=1).numpy()
                rounds = replay(accepted, deepest, answer.finished)
                results.setdefault((variant, budget), []).append(rounds)
        progress()
    return results


def _fit(answers: Sequence[Drafted], states: int) -> PlattScaling:
    return PlattScaling.fit(*joined(answers), states)


def joined(answers: Sequence[Drafted]) -> tuple[Tensor, Tensor, Tensor]:
    """tokens, logprobs [A, D, W] and follows [A, D] of all anchors."""
    depths = answers[0].tokens.shape[1]
    return (
        torch.cat([answer.tokens for answer in answers]),
        torch.cat([answer.logprobs for answer in answers]),
        torch.cat([answer.follows(depths) for answer in answers]),
    )


def _plain(answer: Drafted) -> Callable[[int], Candidates]:
    tokens, logprobs = answer.tokens.tolist(), answer.logprobs.tolist()
    return lambda a: ConditionedDraft((tokens[a], logprobs[a]), ([], []), {}, nodes=1, masks=0)


def _calibrated(answer: Drafted, calibration: PlattScaling) -> Callable[[int], Candidates]:
    scores = [calibration(answer.logprobs, state) for state in range(calibration.shift.shape[1])]
    return lambda a: CalibratedDraft(answer.tokens[a], [of_state[a] for of_state in scores])


def _second(
    head: HeadModel, answer: Drafted, sizes: Sequence[tuple[int, int]]
) -> dict[str, Callable[[int], Candidates]]:
    """One forward of the largest size; a smaller one is a part of it, rows see no later ones."""
    if not sizes:
        return {}
    nodes, masks = (max(column) for column in zip(*sizes, strict=True))
    tree = build_tree(answer.tokens, answer.logprobs, nodes, "best_first")
    anchor_tokens = answer.ids[answer.anchors]
    found = second_pass(head, answer.taps, answer.anchors, tree, anchor_tokens, masks, WIDTH)
    tokens, logprobs = answer.tokens.tolist(), answer.logprobs.tolist()
    behind_tokens, behind_logprobs = (part.tolist() for part in found)
    ranks = [
        {(parents[rank], ids[rank]): rank for rank in range(1, size)}
        for parents, ids, size in zip(
            tree.parents.tolist(), tree.tokens.tolist(), tree.sizes.tolist(), strict=True
        )
    ]

    def candidates(a: int, size: tuple[int, int]) -> Candidates:
        first, second = (tokens[a], logprobs[a]), (behind_tokens[a], behind_logprobs[a])
        return ConditionedDraft(first, second, ranks[a], *size)

    return {_name(size): partial(candidates, size=size) for size in sizes}


def _name(size: tuple[int, int]) -> str:
    return f"second pass, N={size[0]}, M={size[1]}"


def pass_times(head: HeadModel, sizes: Sequence[tuple[int, int]]) -> dict[str, Timing]:
    """Time of the linear layers of each pass at batch 1, on the host's kernel."""
    layers = [
        module.weight.detach()
        for module in head.layers.modules()
        if isinstance(module, torch.nn.Linear)
    ]
    output = head.lm_head.float()
    packed = [pack(weight) for weight in (*layers, output)]

    def run(inputs: Sequence[Tensor]) -> None:
        for x, weight in zip(inputs, packed, strict=True):
            linear(x, weight)

    rows = {ONE_PASS: (head.config.block_size, head.config.depths)}
    rows |= {_name((n, m)): (n + (n - 1) * m, (n - 1) * m) for n, m in sizes}
    return {
        name: measure(
            partial(
                run,
                [
                    *(torch.randn(every, weight.shape[1]) for weight in layers),
                    torch.randn(scored, output.shape[1]),
                ],
            )
        )
        for name, (every, scored) in rows.items()
    }


def table(results: dict[str, Results], times: dict[str, Timing], budgets: Sequence[int]) -> Rows:
    """Header and one row per set and variant. `results` by set."""
    rows = [["set", "draft", *(f"B={budget}" for budget in budgets), "linear layers, ms"]]
    for name, found in results.items():
        for variant in dict.fromkeys(variant for variant, _ in found):
            cells = [_cell(found, variant, budget) for budget in budgets]
            time = f"{1e3 * times[variant].median:.2f}" if variant in times else ""
            rows.append([name, variant, *cells, time])
    return rows


def _cell(found: Results, variant: str, budget: int) -> str:
    tau = sum(found[variant, budget], Rounds()).tau
    if variant == ONE_PASS:
        return f"{tau:.2f}"
    plain = found[ONE_PASS, budget]
    difference, error = tau_difference(found[variant, budget], plain)
    share = 100 / sum(plain, Rounds()).tau
    return f"{tau:.2f} ({share * difference:+.1f} ± {share * error:.1f})"


def reliability_table(answers: Mapping[str, Sequence[Drafted]]) -> Rows:
    """How often the best candidate is right, and the head's confidence in it, by depth and path."""
    depths = next(iter(answers.values()))[0].tokens.shape[1]
    rows = [["set", "off-argmax tokens on the path", *(f"depth {d + 1}" for d in range(depths))]]
    for name, found in answers.items():
        for state, by_depth in enumerate(reliability(*joined(found))):
            label = f"{state} or more" if state == OFF_STATES - 1 else str(state)
            cells = [
                f"{hit:.2f} / {sure:.2f}" if count >= 50 else "" for hit, sure, count in by_depth
            ]
            rows.append([name, label, *cells])
    return rows
