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


def parser() -> argparse.ArgumentParser:
    """The options, also for a caller that adds them to its own command."""
    options = argparse.ArgumentParser(
        prog="jetspec-controller simulate",
        description="Compare budget policies on a simulated server.",
    )
    options.add_argument("--device", choices=sorted(DEVICES), default="table11")
    options.add_argument("--seeds", type=int, nargs="+", default=[1])
    options.add_argument("--azure", type=Path, help="CSV of an Azure LLM inference trace")
    options.add_argument("--mooncake", type=Path, help="JSON lines of a Mooncake trace")
    options.add_argument("--trace", nargs="+", help="only traces whose name contains one of these")
    options.add_argument(
        "--shorten", type=float, default=1.0, help="share of each trace's duration"
    )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison; progress on stderr, the table on stdout."""
    given = parser().parse_args(arguments)
    device = DEVICES[given.device]

    def traces(seed: int) -> dict[str, Trace]:
        found = scenarios(device, seed, given.azure, given.mooncake, given.shorten)
        wanted = given.trace or [""]
        return {name: t for name, t in found.items() if any(part in name for part in wanted)}

    lines = compare(device, traces, PolicyConfig(), given.seeds, progress=_say)
    sys.stdout.write(markdown(lines))
    return 0


def _say(outcome: Outcome) -> None:
    sys.stderr.write(f"{outcome.trace}: {outcome.policy}\n")
