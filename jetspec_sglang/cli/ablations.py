"""`jetspec bench ablations`: train one head per change to a recipe, evaluate them all, one table.

Contract: trains into `<out>/<run>/head` and continues where a kill left it. I/O: those folders, the
data sets that hold corpus answers, and what training and evaluation read.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jetspec_sglang.cli.eval import named, replay
from jetspec_sglang.cli.train import settings_from
from jetspec_sglang.client.errors import UsageError

if TYPE_CHECKING:
    from jetspec_sglang.training.recipe import Recipe

NOTE = (
    "τ ± standard error over the answers, best-first trees and chain, T=0, on prompts that training "
    "never saw. Δ is the difference to the run it is compared with, answer by answer; it does not "
    "hold what another seed would change, which the run `seed1` shows."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, required=True, help="the recipe, as for jetspec train"
    )
    parser.add_argument("--target", required=True, help="folder or hub id of the target")
    parser.add_argument("--data", nargs="+", required=True, metavar="SHARDS")
    parser.add_argument("--answers", nargs="+", required=True, metavar="[NAME=]SHARDS")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--only", nargs="+", metavar="RUN", help="these runs (all)")
    parser.add_argument("--corpus-sets", nargs="+", default=["gsm8k_train", "mbpp_train"],
                        metavar="SET", help="sets whose authors answered the prompts of --data")  # fmt: skip
    parser.add_argument("--data-dir", nargs="*", default=[], help="folders of named data sets")
    parser.add_argument("--feature-cache", type=Path, help="as for jetspec train")
    parser.add_argument("--pause-file", type=Path, help="wait while this file exists")


def run(args: argparse.Namespace) -> list[list[str]]:
    """Train what is missing and evaluate; the rows of the table."""
    from jetspec_sglang.evaluation.ablations import ABLATIONS, BUDGETS, RULES, settings_of, table
    from jetspec_sglang.training.responses import load
    from jetspec_sglang.training.run import train

    names = args.only or list(ABLATIONS)
    if unknown := [name for name in names if name not in ABLATIONS]:
        raise UsageError(f"--only {unknown[0]}: the runs are {', '.join(ABLATIONS)}")
    answers = named(args.answers)
    given = {"config": args.config, "target": args.target, "data": args.data, "run": args.out}
    given |= {"held_out": list(answers.values())}
    given |= {
        name: getattr(args, name)
        for name in ("feature_cache", "pause_file")
        if getattr(args, name) is not None
    }
    recipe = settings_from(argparse.Namespace(**given))
    corpus: tuple[Path, ...] = ()
    if any(ABLATIONS[name].corpus for name in names):
        corpus = (_corpus(args, recipe),)
    heads = {name: train(settings_of(name, recipe, corpus)) for name in names}
    sets = {name: load(shards) for name, shards in answers.items()}
    return table(
        replay(args.target, heads, sets, budgets=BUDGETS, rules=RULES, pause_file=args.pause_file)
    )


def _corpus(args: argparse.Namespace, recipe: Recipe) -> Path:
    """The shard of corpus answers to the prompts of `recipe.data`, made once."""
    from jetspec_sglang.evaluation.datasets import load_answers
    from jetspec_sglang.training.corpus import with_corpus_answers
    from jetspec_sglang.training.prompts import ChatTemplate
    from jetspec_sglang.training.responses import load_all, save

    file = recipe.run / "corpus.npz"
    if not file.exists():
        texts: dict[str, str] = {}
        for name in args.corpus_sets:
            texts |= load_answers(name, args.data_dir)
        template = ChatTemplate.of_target(args.target)
        made = with_corpus_answers(load_all(recipe.data), template, texts)
        file.parent.mkdir(parents=True, exist_ok=True)
        save(made, file)
    return file
