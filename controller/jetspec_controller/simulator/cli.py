"""The command line of the comparison: reads trace files, prints a Markdown table, nothing else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..core import PolicyConfig
from .arrivals import Trace
from .curves import DEVICES
from .report import compare, markdown
from .run import Outcome
from .scenarios import scenarios


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of :func:`run` to a command."""
    parser.add_argument(
        "--device", choices=sorted(DEVICES), default="table11", help="whose costs and τ"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--azure", type=Path, help="CSV of an Azure LLM inference trace")
    parser.add_argument("--mooncake", type=Path, help="JSON lines of a Mooncake trace")
    parser.add_argument("--trace", nargs="+", help="only traces whose name contains one of these")
    parser.add_argument("--shorten", type=float, default=1.0, help="share of each trace's duration")


def run(options: argparse.Namespace) -> int:
    """Runs the comparison; progress on stderr, the table on stdout."""
    if not 0 < options.shorten <= 1:
        raise ValueError(f"--shorten is {options.shorten}; it must be above 0 and at most 1")
    device = DEVICES[options.device]
    wanted = options.trace or [""]

    def traces(seed: int) -> dict[str, Trace]:
        found = scenarios(device, seed, options.azure, options.mooncake, options.shorten)
        chosen = {name: t for name, t in found.items() if any(part in name for part in wanted)}
        if not chosen:
            raise ValueError(f"--trace {' '.join(wanted)} names none of: {', '.join(found)}")
        return chosen

    lines = compare(device, traces, PolicyConfig(), options.seeds, progress=_say)
    sys.stdout.write(markdown(lines))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The comparison as a command of its own."""
    parser = argparse.ArgumentParser(description="Compare budget policies on a simulated server.")
    add_options(parser)
    return run(parser.parse_args(arguments))


def _say(outcome: Outcome) -> None:
    sys.stderr.write(f"{outcome.trace}: {outcome.policy}\n")
