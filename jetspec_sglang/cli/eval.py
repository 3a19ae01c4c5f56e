"""`jetspec eval`: τ, per-depth accuracy and simulated speed-up of heads, without a server.

Contract: exact for temperature 0 on answers that `jetspec data` had the target write greedily.
Prints a table; `--out` gets `results.json` and `tau.png`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tqdm import tqdm

    from jetspec_sglang.evaluation.costs import Costs
    from jetspec_sglang.evaluation.offline import SetResult
    from jetspec_sglang.head.model import HeadModel
    from jetspec_sglang.training.responses import Responses
    from jetspec_sglang.training.target import Recorder

EXAMPLES = """\
examples:
  jetspec eval --target Qwen/Qwen3-8B --heads runs/first/head --answers held-out
  jetspec eval --target T --heads causal=runs/a/head both=runs/b/head \\
      --answers gsm8k=held-out/gsm8k-00000.npz chat=held-out/chat-00000.npz --out report
"""
RULES = ("chain", "accum_logp", "best_first")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "eval",
        help=COMMANDS["eval"].help,
        description="Replay rounds on the target's own stored answers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", required=True, help="folder or hub id of the target")
    parser.add_argument("--heads", nargs="+", required=True, metavar="[NAME=]HEAD")
    parser.add_argument("--answers", nargs="+", required=True, metavar="[NAME=]SHARDS")
    parser.add_argument("--budgets", nargs="+", type=int, default=[2, 4, 8, 16, 32, 64, 128, 256])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--width", type=int, default=8, help="candidates per depth (%(default)s)")
    parser.add_argument("--limit", type=int, help="at most this many answers of each set")
    parser.add_argument("--costs", type=Path, help="measured costs of a round, for speed-ups")
    parser.add_argument("--out", type=Path, help="folder for results.json and tau.png")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (torch's choice)")
    return parser


def run(args: argparse.Namespace) -> int:
    if bad := [budget for budget in args.budgets if budget < 1]:
        raise UsageError(f"--budgets {bad[0]}: must be 1 or more")
    try:
        return _run(args)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _run(args: argparse.Namespace) -> int:
    import torch

    from jetspec_sglang.evaluation.costs import Costs
    from jetspec_sglang.head.checkpoint import resolve_head
    from jetspec_sglang.training.responses import load

    if args.threads:
        torch.set_num_threads(args.threads)
    costs = Costs.load(args.costs) if args.costs else None
    sets = {name: load(path) for name, path in named(args.answers).items()}
    if args.limit:
        sets = {name: first(answers, args.limit) for name, answers in sets.items()}
    heads = {name: resolve_head(folder) for name, folder in named(args.heads).items()}
    results = replay(
        args.target, heads, sets, budgets=args.budgets, rules=args.rules, width=args.width
    )
    print(table(results, args.budgets, costs))
    if args.out:
        _write(args.out, results)
    return 0


def first(answers: "Responses", limit: int) -> "Responses":
    """At most `limit` answers, from the beginning."""
    return answers.take(range(min(limit, len(answers))))


def load_heads(
    target_name: str, folders: "dict[str, Path]"
) -> "tuple[dict[str, HeadModel], dict[str, Recorder], tuple[int, ...]]":
    """Heads and recorders by name, and the target's stop ids.

    Heads with the same taps share one recorder. Raises ValueError for a head that does not fit.
    """
    from jetspec_sglang.head.model import HeadModel
    from jetspec_sglang.training.target import Recorder, load_target, matrices, stop_ids

    target = load_target(target_name)
    heads, recorders, by_taps = {}, {}, {}
    for name, folder in folders.items():
        head = HeadModel.from_folder(folder, *matrices(target))
        head.config.check_against_target(target.config)
        taps = head.config.target_layer_ids
        if taps not in by_taps:
            by_taps[taps] = Recorder(target, taps)
        heads[name], recorders[name] = head, by_taps[taps]
    return heads, recorders, stop_ids(target)


def replay(
    target_name: str,
    folders: "dict[str, Path]",
    sets: "dict[str, Responses]",
    *,
    budgets: "Sequence[int]",
    rules: "Sequence[str]",
    width: int = 8,
    pause_file: Path | None = None,
) -> "dict[str, dict[str, SetResult]]":
    """Every head on every set of answers, `{set: {head: result}}`, with one progress bar per set.

    Waits between answers while `pause_file` exists. Raises ValueError for a head that does not fit
    the target.
    """
    from tqdm import tqdm

    from jetspec_sglang.evaluation.offline import evaluate

    heads, recorders, stops = load_heads(target_name, folders)
    results: dict[str, dict[str, SetResult]] = {}
    for name, answers in sets.items():
        with tqdm(total=len(answers), desc=name, unit="answer") as bar:

            def answered(bar: "tqdm[Any]" = bar) -> None:
                bar.update()
                while pause_file and pause_file.exists():
                    time.sleep(1)

            results[name] = evaluate(
                heads, recorders, answers, stops,
                budgets=budgets, rules=rules, width=width, progress=answered,
            )  # fmt: skip
    return results


def table(
    results: "dict[str, dict[str, SetResult]]", budgets: list[int], costs: "Costs | None"
) -> str:
    """A Markdown table, one row per set, head and rule: τ, and the speed-up where costs are
    known."""
    rows = [
        ["set", "head", "rule", *(f"B={b}" for b in budgets), "depth-1", "depth-2", "depth-3"],
    ]
    rows.append(["---"] * len(rows[0]))
    for set_name, by_head in results.items():
        for head, result in by_head.items():
            top1 = [f"{value:.3f}" for value in (result.top1 / result.places).tolist()[:3]]
            for rule in dict.fromkeys(rule for rule, _ in result.rounds):
                cells = []
                for budget in budgets:
                    tau = result.tau(rule, budget)
                    cell = f"{tau:.2f}"
                    if costs is not None:
                        cell += f" ({costs.speedup(tau, budget):.2f}x)"
                    cells.append(cell)
                rows.append([set_name, head, rule, *cells, *top1, *[""] * (3 - len(top1))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _write(folder: Path, results: "dict[str, dict[str, SetResult]]") -> None:
    from jetspec_sglang.evaluation.plots import plot_curves

    folder.mkdir(parents=True, exist_ok=True)
    plain = {
        name: {head: result.as_dict() for head, result in by_head.items()}
        for name, by_head in results.items()
    }
    (folder / "results.json").write_text(json.dumps(plain, indent=1) + "\n")
    curves: dict[str, dict[str, dict[int, float]]] = {}
    for name, by_head in results.items():
        lines: dict[str, dict[int, float]] = {}
        for head, result in by_head.items():
            for rule, budget in result.rounds:
                lines.setdefault(f"{head}, {rule}", {})[budget] = result.tau(rule, budget)
        curves[name] = lines
    plot_curves(curves, folder / "tau.png")


def named(values: list[str]) -> dict[str, str]:
    """`name=value`, or a value that is named by its last part."""
    found: dict[str, str] = {}
    for value in values:
        name, separator, rest = value.partition("=")
        name, rest = (name, rest) if separator else (Path(value).stem, value)
        if name in found:
            raise UsageError(f"two heads are named {name}; write NAME=...")
        found[name] = rest
    return found
