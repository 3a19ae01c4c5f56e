"""`jetspec train`: one training run, from flags, from a JSON file, or from both.

Contract: every field of `Recipe` is a flag; a flag wins over the file. Several processes:
`accelerate launch -m jetspec_sglang.cli train ...`. The finished head is in `<run>/head`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError, UsageError

EXAMPLES = """\
examples:
  jetspec train --target Qwen/Qwen3-8B --data answers/ --run runs/first \\
      --mask-token-id 151669 --steps 20000
  jetspec train --config recipe.json --run runs/again
  accelerate launch --num-processes 8 -m jetspec_sglang.cli train --config recipe.json
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    from jetspec_sglang.training.recipe import Recipe

    parser = subparsers.add_parser(
        "train",
        help=COMMANDS["train"].help,
        description="Train a draft head on the target's own answers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", type=Path, help="JSON file with any of these settings")
    for name, field in Recipe.model_fields.items():
        default = "" if field.is_required() or field.default is None else f" ({field.default})"
        options: dict[str, Any] = {"help": (field.description or "").replace("%", "%%") + default}
        if field.annotation is bool:
            options["action"] = argparse.BooleanOptionalAction
        elif "tuple" in str(field.annotation):
            options["nargs"] = "+"
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    return parser


def run(args: argparse.Namespace) -> int:
    from jetspec_sglang.training.run import train

    settings = settings_from(args)
    try:
        folder = train(settings)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    print(folder)
    return 0


def settings_from(args: argparse.Namespace) -> Any:
    """`Recipe` of a parsed command line. Raises UsageError, one line for all problems."""
    from pydantic import ValidationError

    from jetspec_sglang.training.recipe import Recipe

    values: dict[str, Any] = {}
    if hasattr(args, "config"):
        try:
            values = json.loads(args.config.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"--config {args.config}: {error}") from None
    values |= {name: getattr(args, name) for name in Recipe.model_fields if hasattr(args, name)}
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, p['loc'])) or 'settings'}: {p['msg']}" for p in error.errors()
        ]
        raise UsageError("; ".join(problems)) from None
