"""Chi-square tests of the accept rule at T > 0: committed tokens follow the target's law.

The target is a second-order Markov chain over a small vocabulary, so that a node's distribution
depends on its own path and the exact law of the first tokens is a product.
"""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from scipy.stats import chisquare

from jetspec_sglang.tree import Tree, build_tree
from jetspec_sglang.verify.accept import Accepted, accept

VOCABULARY, DEPTH, WIDTH = 5, 3, 3
REQUESTS, TOKENS = 30_000, 3  # requests run, and their first tokens compared


def keep_top(probs: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Top-k, then the fewest tokens whose mass reaches top-p, renormalised."""
    ordered, tokens = probs.sort(dim=-1, descending=True)
    ordered[..., top_k:] = 0
    ordered /= ordered.sum(-1, keepdim=True)
    ordered[ordered.cumsum(-1) - ordered >= top_p] = 0
    kept = torch.zeros_like(probs).scatter(-1, tokens, ordered)
    return kept / kept.sum(-1, keepdim=True)


@dataclass(frozen=True)
class World:
    law: torch.Tensor  # [V, V, V]: law of the next token after the last two
    trees: Tree  # one for every last two tokens, at index first * V + second
    generator: torch.Generator

    def draw(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        laws = self.law[first, second].view(-1, VOCABULARY)
        return laws.multinomial(1, generator=self.generator).view(first.shape)

    def exact(self) -> torch.Tensor:
        """Law of the first TOKENS tokens after (0, 0), over all sequences in product order."""
        law, probs = self.law.double(), []
        for sequence in product(range(VOCABULARY), repeat=TOKENS):
            prob, last = torch.ones((), dtype=torch.float64), (0, 0)
            for token in sequence:
                prob = prob * law[last][token]
                last = (last[1], token)
            probs.append(prob)
        return torch.stack(probs)


def make_world(budget: int, rule: str, top_k: int = VOCABULARY, top_p: float = 1.0) -> World:
    generator = torch.Generator().manual_seed(7)
    logits = 1.5 * torch.randn((VOCABULARY,) * 3, generator=generator)
    guess = logits.view(-1, 1, VOCABULARY) + torch.randn(
        VOCABULARY**2, DEPTH, VOCABULARY, generator=generator
    )
    top = guess.log_softmax(-1).topk(WIDTH)
    trees = build_tree(top.indices, top.values, budget, rule)
    return World(keep_top(logits.softmax(-1), top_k, top_p), trees, generator)


def run_round(
    world: World, first: torch.Tensor, second: torch.Tensor
) -> tuple[Accepted, torch.Tensor, torch.Tensor]:
    """One round after the last two tokens given: what is accepted, and each node's last two."""
    at = first * VOCABULARY + second
    tree = Tree(*(getattr(world.trees, name)[at] for name in Tree.__slots__))
    seconds = tree.tokens.clone()
    seconds[:, 0] = second
    firsts = seconds.gather(1, tree.parents.clamp(min=0))
    firsts[:, 0] = first
    return accept(tree, world.draw(firsts, seconds), DEPTH), firsts, seconds


def first_tokens(world: World, redraw_bonus: bool = False) -> torch.Tensor:
    """[REQUESTS, TOKENS]: what each request commits first, from rounds in a row.

    `redraw_bonus` breaks the rule: it draws a fresh token where the walk ends, instead of the one
    that no child carried.
    """
    history = torch.zeros(REQUESTS, 2 + TOKENS + DEPTH + 1, dtype=torch.int64)
    length = torch.full((REQUESTS,), 2)
    rows = torch.arange(REQUESTS)
    while (length < 2 + TOKENS).any():
        accepted, firsts, seconds = run_round(
            world, history[rows, length - 2], history[rows, length - 1]
        )
        tokens = accepted.tokens.clone()
        if redraw_bonus:
            end = accepted.lens.long() - 1
            node = accepted.path[rows, end]
            tokens[rows, end] = world.draw(firsts[rows, node], seconds[rows, node])
        for column in range(DEPTH + 1):
            place = (length + column).clamp(max=history.shape[1] - 1)
            is_new = (column < accepted.lens) & (length < 2 + TOKENS)
            history[rows, place] = torch.where(is_new, tokens[:, column], history[rows, place])
        length = torch.where(length < 2 + TOKENS, length + accepted.lens, length)
    return history[:, 2 : 2 + TOKENS]


def p_value(world: World, tokens: torch.Tensor) -> float:
    base = torch.tensor([VOCABULARY**power for power in reversed(range(TOKENS))])
    counts = torch.bincount((tokens * base).sum(1), minlength=VOCABULARY**TOKENS).double()
    expected = world.exact() * REQUESTS
    assert counts[expected == 0].sum() == 0, "a token that the filter excludes was committed"
    rare = (expected > 0) & (expected < 5)  # pooled, as the chi-square approximation asks
    usual = expected >= 5
    observed = torch.cat([counts[usual], counts[rare].sum()[None]])
    wanted = torch.cat([expected[usual], expected[rare].sum()[None]])
    nonzero = wanted > 0
    wanted, observed = wanted[nonzero], observed[nonzero]
    return float(chisquare(observed, wanted * (observed.sum() / wanted.sum())).pvalue)


WORLDS = [
    pytest.param(budget, rule, filters, id=f"{rule}-{budget}-{name}")
    for budget, rule in ((1, "chain"), (4, "chain"), (4, "best_first"), (16, "best_first"))
    for name, filters in (
        ("all", {}),
        ("top_k", {"top_k": 3}),
        ("top_p", {"top_p": 0.7}),
        ("top_k_top_p", {"top_k": 4, "top_p": 0.9}),
    )
]


@pytest.mark.parametrize(("budget", "rule", "filters"), WORLDS)
def test_committed_tokens_follow_the_target(budget, rule, filters):
    world = make_world(budget, rule, **filters)
    assert p_value(world, first_tokens(world)) > 1e-3


@pytest.mark.parametrize("budget", [4, 16])
def test_a_redrawn_bonus_is_detected(budget):
    world = make_world(budget, "best_first")
    assert p_value(world, first_tokens(world, redraw_bonus=True)) < 1e-9


def test_greedy_targets_are_detected():
    world = make_world(16, "best_first")
    greedy = torch.nn.functional.one_hot(world.law.argmax(-1), VOCABULARY).float()
    tokens = first_tokens(World(greedy, world.trees, world.generator))
    assert p_value(world, tokens) < 1e-9


def test_the_trees_are_worth_testing():
    """Rounds end at every depth, siblings included: the rule's branches are all taken."""
    world = make_world(16, "best_first")
    zeros = torch.zeros(REQUESTS, dtype=torch.int64)
    accepted, _, _ = run_round(world, zeros, zeros)
    assert set(accepted.lens.tolist()) == set(range(1, DEPTH + 2))
    seconds = accepted.path[:, 1][accepted.lens > 1]
    assert len(set(seconds.tolist())) == WIDTH
