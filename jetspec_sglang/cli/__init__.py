"""The `jetspec` command: `main(argv) -> exit status`.

Contract: 0 for success, 1 for failure, 2 for a wrong command line, 130 after Ctrl-C, 141 when the
reader of its output left (as in a shell); an error is one line on stderr. Only the module of the
requested command is imported.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

from jetspec_sglang import __version__
from jetspec_sglang.cli.commands import COMMANDS
from jetspec_sglang.client.errors import CommandError

TRAINING_PACKAGES = ("accelerate", "tensorboard", "matplotlib")
"""Packages of the extra `train`; serving needs none of them."""

EXAMPLES = """\
examples:
  jetspec serve                                  the embedded model on this machine
  jetspec serve --model-path Qwen/Qwen3-8B \\
      --speculative-draft-model-path JetSpec/jetspec-qwen3-8b
  jetspec generate "Why is the sky blue?"        try a running server
  jetspec budget set 16                          verify at most 16 nodes per request per round
  jetspec doctor                                 what is missing or wrong, and what to do
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: this process's) and return its exit status."""
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; the interpreter's own flush must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _run(arguments: list[str]) -> int:
    parser, module = _parser(arguments)
    args, rest = parser.parse_known_args(arguments)
    if module is None:
        parser.print_help()
        return 0
    if rest and not getattr(args, "pass_through", False):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.rest = rest
    try:
        status: int = module.run(args)
        return status
    except CommandError as error:
        print(f"jetspec {args.command}: {error}", file=sys.stderr)
        return error.status
    except ModuleNotFoundError as error:
        if error.name not in TRAINING_PACKAGES:
            raise
        print(
            f"jetspec {args.command}: the package {error.name} is not installed; "
            "pip install 'jetspec-sglang[train]'",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130


def _parser(arguments: list[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The top parser and, when the arguments name a command, its module with its own parser."""
    parser = argparse.ArgumentParser(
        prog="jetspec",
        description="JetSpec tree speculative decoding for stock SGLang.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"jetspec-sglang {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = arguments[0] if arguments and arguments[0] in COMMANDS else None
    module = importlib.import_module(COMMANDS[asked].module) if asked else None
    for name, command in COMMANDS.items():
        if name == asked and module is not None:
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=command.help)
    return parser, module
