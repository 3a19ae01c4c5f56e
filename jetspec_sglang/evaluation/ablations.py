"""The paper's ablations: one head per change to a recipe, all trained alike, all on the same answers.

Contract: pure; `jetspec bench ablations` trains and evaluates. A run differs from its reference in
what `changes` names and in nothing else, so their difference is taken answer by answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jetspec_sglang.evaluation.acceptance import tau_difference
from jetspec_sglang.evaluation.offline import SetResult
from jetspec_sglang.training.recipe import Recipe

BUDGETS = (16, 64)
RULES = ("chain", "best_first")
CORPUS = "corpus answers"


@dataclass(frozen=True, slots=True)
class Ablation:
    """Settings that differ from the recipe's, and the run to compare with ("" for the recipe)."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    against: str = "base"
    corpus: bool = False


ABLATIONS: dict[str, Ablation] = {
    "base": Ablation(against=""),
    "bidirectional": Ablation({"causal": False}),
    "sft": Ablation({"loss": "sft"}),
    "reverse_kl": Ablation({"loss": "reverse_kl"}),
    "corpus": Ablation(corpus=True),
    "gamma0": Ablation({"gamma": 0.0}),
    "gamma0_bidirectional": Ablation({"gamma": 0.0, "causal": False}, against="gamma0"),
    "seed1": Ablation({"seed": 1}),
    "seed1_bidirectional": Ablation({"seed": 1, "causal": False}, against="seed1"),
}
"""`seed1` has the settings of the recipe. Its difference shows the effect of chance."""


def settings_of(name: str, recipe: Recipe, corpus: tuple[Path, ...]) -> Recipe:
    """Settings of one run: `recipe` in the folder `recipe.run`/name; `corpus` holds its answers."""
    ablation = ABLATIONS[name]
    changes = {**ablation.changes, "run": recipe.run / name}
    if ablation.corpus:
        # Read once or less, so recording its features would cost more than it saves.
        changes |= {"data": corpus, "feature_cache": None}
    return Recipe.model_validate(recipe.model_dump() | changes)


def table(results: Mapping[str, Mapping[str, SetResult]]) -> list[list[str]]:
    """Header and one row per set and run: depth-1 accuracy, τ ± standard error, paired differences.

    `results`: by set, then by run.
    """
    taus = [("chain", max(BUDGETS)), *(("best_first", budget) for budget in BUDGETS)]
    header = ["set", "run", "what differs", "depth-1", "chain"]
    header += [f"B={budget}" for budget in BUDGETS]
    rows = [[*header, "against", *(f"Δ B={budget}" for budget in BUDGETS)]]
    for set_name, by_run in results.items():
        for name, result in by_run.items():
            cells = [f"{float(result.top1[0] / result.places[0]):.3f}"]
            cells += [
                f"{result.tau(*place):.2f} ± {result.standard_error(*place):.2f}" for place in taus
            ]
            cells += _differences(result, by_run, ABLATIONS[name].against)
            rows.append([set_name, name, _what(name), *cells])
    return rows


def _what(name: str) -> str:
    ablation = ABLATIONS[name]
    changes = [f"{key} {value}" for key, value in ablation.changes.items()]
    return ", ".join([*changes, *[CORPUS] * ablation.corpus])


def _differences(result: SetResult, runs: Mapping[str, SetResult], against: str) -> Sequence[str]:
    if against not in runs:
        return ["", *[""] * len(BUDGETS)]
    cells = [against]
    for budget in BUDGETS:
        place = ("best_first", budget)
        difference, error = tau_difference(result.rounds[place], runs[against].rounds[place])
        cells.append(f"{difference:+.3f} ± {error:.3f}")
    return cells
