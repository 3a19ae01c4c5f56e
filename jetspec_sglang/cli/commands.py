"""The subcommands of `jetspec`: a name, the module that holds it, and its line in the help.

Contract: a command's module has `add_parser(subparsers) -> argparse.ArgumentParser` and `run(args)
-> int` (the exit status). It is imported only when its command is called, so that `jetspec --help`
needs none of them; heavy imports belong inside `run` all the same, so that `jetspec COMMAND --help`
is fast too. A parser with `set_defaults(pass_through=True)` gets the arguments it does not know as
`args.rest`. Pure.
"""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Subparsers: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers = argparse._SubParsersAction


@dataclass(frozen=True, slots=True)
class Command:
    """Where a subcommand is (module path) and what it does (one line)."""

    module: str
    help: str


COMMANDS = {
    "serve": Command("jetspec_sglang.cli.serve", "serve a model with SGLang and JetSpec trees"),
    "generate": Command(
        "jetspec_sglang.cli.generate", "ask a running server one question, with speed and τ"
    ),
    "budget": Command(
        "jetspec_sglang.cli.budget", "read or change the tree budget of a running server"
    ),
    "doctor": Command(
        "jetspec_sglang.cli.doctor", "check this machine, the plugin, the head and the memory"
    ),
    "data": Command(
        "jetspec_sglang.cli.data", "let the target write the answers that a head learns from"
    ),
    "train": Command("jetspec_sglang.cli.train", "train a draft head"),
    "bench": Command(
        "jetspec_sglang.cli.bench", "measure serving, rounds, trees and attention on this machine"
    ),
    "export": Command(
        "jetspec_sglang.cli.export",
        "write a trained head in the release's layout, with a model card",
    ),
    "eval": Command(
        "jetspec_sglang.cli.eval",
        "compute τ of a head at every budget from stored answers, offline",
    ),
}
