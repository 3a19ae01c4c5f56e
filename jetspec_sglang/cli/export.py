"""`jetspec export`: write a training run's head in the release's layout, with a model card.

Contract: reads the run folder and the files it names; writes the head folder. You may choose
another draft vocabulary, because the head's weights do not depend on it.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError

if TYPE_CHECKING:
    from jetspec_sglang.training.card import DataLine

EXAMPLES = """\
examples:
  jetspec export --run runs/first --out my-head
  jetspec export --run runs/first --out my-head --results report/results.json \\
      --draft-vocab-size 12288 --target-name SmolLM2-135M-Instruct
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "export",
        help=COMMANDS["export"].help,
        description="Write a run's latest head in the release's layout, with its model card.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of `jetspec train`")
    parser.add_argument("--out", type=Path, required=True, help="folder of the head")
    parser.add_argument("--target-name", help="name of the target in the card")
    parser.add_argument("--results", type=Path, help="results.json of `jetspec eval`")
    parser.add_argument(
        "--notes", type=Path, metavar="FILE", help="file whose text goes into the card"
    )
    parser.add_argument(
        "--draft-vocab-size", type=int, help="ids to draft from, 0 for all (as in training)"
    )
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    return parser


def run(args: argparse.Namespace) -> int:
    try:
        return _run(args)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _run(args: argparse.Namespace) -> int:
    import torch

    from jetspec_sglang.head.checkpoint import load_draft_vocab, load_tensors
    from jetspec_sglang.head.config import HeadConfig
    from jetspec_sglang.training.card import model_card
    from jetspec_sglang.training.export import export_head
    from jetspec_sglang.training.recipe import Recipe
    from jetspec_sglang.training.responses import load_all
    from jetspec_sglang.training.vocab import choose_draft_vocab

    settings = Recipe.model_validate_json((args.run / "settings.json").read_text())
    config = HeadConfig.from_folder(args.run / "head")
    tensors = load_tensors(args.run / "head", config)
    vocab = load_draft_vocab(args.run / "head", config.vocab_size)
    if args.draft_vocab_size == 0:
        vocab = None
    elif args.draft_vocab_size is not None:
        answers = load_all(settings.data)
        vocab = choose_draft_vocab(answers, config.vocab_size, args.draft_vocab_size)
    metrics_file = args.run / "metrics.jsonl"
    card = model_card(
        config,
        target=args.target_name or settings.target.name,
        settings=settings.model_dump(),
        data=_data_lines(settings.data),
        metrics=[json.loads(line) for line in metrics_file.read_text().splitlines()],
        parameters=sum(tensor.numel() for tensor in tensors.values()),
        draft_vocab=None if vocab is None else len(vocab),
        notes=args.notes.read_text() if args.notes else "",
        results=json.loads(args.results.read_text()) if args.results else None,
    )
    export_head(
        args.out,
        config,
        {name: tensor.to(torch.float32) for name, tensor in tensors.items()},
        draft_vocab=vocab,
        card=card,
        dtype=args.dtype,
    )
    print(args.out)
    return 0


def _data_lines(paths: Iterable[Path]) -> "list[DataLine]":
    """Answers by source; licences from the provenance.json beside the shards, where there is one."""
    from jetspec_sglang.training.card import DataLine
    from jetspec_sglang.training.responses import load_all

    answers = load_all(paths)
    licences: dict[str, str] = {}
    for path in paths:
        file = (path if path.is_dir() else path.parent) / "provenance.json"
        if file.exists():
            for source, about in json.loads(file.read_text())["sources"].items():
                licences[source] = about.get("licence", "")
    lines = []
    tokens = answers.lengths - answers.response_start
    for source in sorted(set(answers.source.tolist())):
        own = answers.source == source
        lines.append(
            DataLine(
                source, int(own.sum()), int(tokens[own].sum()), licences.get(source, "unknown")
            )
        )
    return lines
