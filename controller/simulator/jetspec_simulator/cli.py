"""``jetspec-simulate``: reads trace files, prints Markdown tables, and may put them into a document.

Exit status: 0 for success, 1 if a file cannot be read or written, 2 for invalid arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from jetspec_controller.core import PolicyConfig

from jetspec_simulator import demands
from jetspec_simulator.arrivals import Trace
from jetspec_simulator.curves import DEVICES
from jetspec_simulator.report import compare, markdown
from jetspec_simulator.run import RunResult
from jetspec_simulator.scenarios import INTERACTIVE, scenarios


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script."""
    try:
        _run(_parser().parse_args(arguments))
    except (ValueError, OSError) as error:
        sys.stderr.write(f"jetspec-simulate: {error}\n")
        return 2 if isinstance(error, ValueError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jetspec-simulate", description="Compare budget policies on a simulated server."
    )
    parser.add_argument(
        "--device", choices=sorted(DEVICES), default="table11", help="whose costs and τ"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--azure", type=Path, help="CSV of an Azure LLM inference trace")
    parser.add_argument("--mooncake", type=Path, help="JSON lines of a Mooncake trace")
    parser.add_argument("--trace", nargs="+", help="only traces whose name contains one of these")
    parser.add_argument("--shorten", type=float, default=1.0, help="share of each trace to run")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="also put the tables between <!-- bench:policies-DEVICE --> and its end",
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    """Runs the comparison; progress on stderr, the tables on stdout."""
    if not 0 < options.shorten <= 1:
        raise ValueError(f"--shorten is {options.shorten}; it must be above 0 and at most 1")
    if min(options.seeds) < 0:
        raise ValueError(f"--seeds holds {min(options.seeds)}; a seed is at least 0")
    device = DEVICES[options.device]
    wanted = options.trace or [""]

    def traces(seed: int) -> dict[str, Trace]:
        found = scenarios(device, seed, options.azure, options.mooncake, options.shorten)
        chosen = {name: t for name, t in found.items() if any(part in name for part in wanted)}
        if not chosen:
            raise ValueError(f"--trace {' '.join(wanted)} names none of: {', '.join(found)}")
        return chosen

    name = f"policies-{options.device}"
    if options.write is not None:
        _replace(options.write, name, "")  # a mistake in the document must not cost the run
    lines = compare(device, traces, PolicyConfig(), options.seeds, INTERACTIVE, progress=_say)
    conditions = (
        f"Seeds {', '.join(map(str, options.seeds))}; {options.shorten:.0%} of each trace; goodput: "
        f"tokens/s of requests with TTFT ≤ {INTERACTIVE.ttft_s:g} s and "
        f"TPOT ≤ {INTERACTIVE.tpot_s * 1e3:g} ms.\n"
    )
    text = "\n".join([demands.markdown(demands.judge(lines)), markdown(lines), conditions])
    sys.stdout.write(text)
    if options.write is not None:
        options.write.write_text(_replace(options.write, name, text))


def _say(outcome: RunResult) -> None:
    sys.stderr.write(f"{outcome.trace}: {outcome.policy}\n")


def _replace(document: Path, name: str, body: str) -> str:
    """The document with ``body`` between the markers of ``name``. Raises ValueError, OSError."""
    opening, closing = f"<!-- bench:{name} -->\n", f"<!-- /bench:{name} -->"
    before, found, rest = document.read_text().partition(opening)
    _, ended, after = rest.partition(closing)
    if not found or not ended:
        raise ValueError(f"{document} must hold {opening.strip()} and then {closing}")
    return f"{before}{opening}{body}{closing}{after}"
