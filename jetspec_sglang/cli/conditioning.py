"""`jetspec bench conditioning`: are scores calibrated by path, or a second pass, worth their time?

Contract: offline, as `jetspec eval`. I/O: target, head and the answers' shards.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jetspec_sglang.cli.eval import first, load_heads, named

if TYPE_CHECKING:
    from jetspec_sglang.evaluation.conditioning import Drafted, Results, Rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", required=True, help="folder or hub id of the target")
    parser.add_argument("--head", required=True, help="folder or hub id of the head")
    parser.add_argument("--answers", nargs="+", required=True, metavar="[NAME=]SHARDS")
    parser.add_argument("--limit", type=int, default=32, help="answers of a set (%(default)s)")


def run(args: argparse.Namespace) -> tuple[Rows, Rows]:
    """The table of variants, and the table of the head's confidence against its accuracy."""
    from tqdm import tqdm

    from jetspec_sglang.evaluation import conditioning
    from jetspec_sglang.head.checkpoint import resolve_head
    from jetspec_sglang.training.responses import load

    sets = {name: load(shards) for name, shards in named(args.answers).items()}
    heads, recorders, stops = load_heads(args.target, {args.head: resolve_head(args.head)})
    head, recorder = heads[args.head], recorders[args.head]
    drafted: dict[str, list[Drafted]] = {}
    results: dict[str, Results] = {}
    for name, answers in sets.items():
        chosen = first(answers, args.limit)
        drafted[name] = list(conditioning.drafts(head, recorder, chosen, stops))
        with tqdm(total=len(drafted[name]), desc=name, unit="answer") as bar:
            results[name] = conditioning.compare(head, drafted[name], progress=bar.update)
    times = conditioning.pass_times(head, conditioning.SIZES)
    return (
        conditioning.table(results, times, conditioning.BUDGETS),
        conditioning.reliability_table(drafted),
    )
