"""Arguments of `jetspec bench load`, `step` and `soak`, checked, and the experiment they ask for.

Contract: no I/O. Everything that is wrong with them is a UsageError before a server is started.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspec_sglang.cli.commands import Subparsers
from jetspec_sglang.client.errors import UsageError
from jetspec_sglang.host.dtype import default_dtype

if TYPE_CHECKING:
    from loadtests.experiment.cells import Point
    from loadtests.experiment.experiment import Experiment

QUICK: dict[str, dict[str, Any]] = {
    "load": {"rates": [1.0, 4.0], "seeds": 1, "seconds": 8.0, "warmup": 2.0, "tiers": [1, 16],
             "max_tokens": 24},
    "step": {"steps": 2, "hold": 10.0, "max_tokens": 24},
    "soak": {"seconds": 40.0, "max_tokens": 24, "sampled": 4},
}  # fmt: skip
DRAIN_S = 20.0
"""An over-saturated cell is not drained to its last request."""


def add_parsers(kinds: Subparsers, add_write: Callable[[argparse.ArgumentParser], None]) -> None:
    """The three subcommands of `jetspec bench`."""
    load = kinds.add_parser("load", help="plain, static and adaptive budgets at request rates")
    load.add_argument("--rates", nargs="+", type=float, default=[0.25, 0.5, 1, 2, 3, 4, 6],
                      help="requests per second (%(default)s)")  # fmt: skip
    load.add_argument("--batches", nargs="+", type=int, metavar="N",
                      help="closed loops of N clients instead of rates; adds the paper's table")  # fmt: skip
    load.add_argument(
        "--tiers", nargs="+", type=int, metavar="B", help="tiers to measure (all of the server's)"
    )
    load.add_argument("--seeds", type=int, default=3, help="repeats, each with its own arrivals (%(default)s)")  # fmt: skip
    load.add_argument(
        "--seconds", type=float, default=60.0, help="seconds of arrivals per cell (%(default)s)"
    )
    load.add_argument(
        "--warmup", type=float, default=10.0, help="first seconds to leave out (%(default)s)"
    )
    load.add_argument("--arrivals", default="poisson", help="as in the locustfile (%(default)s)")
    load.add_argument("--period", type=float, help="seconds of a diurnal wave")
    load.add_argument("--burstiness", type=float, help="shape of gamma gaps")
    load.add_argument("--trace", type=Path, metavar="FILE", help="replay a trace instead of rates")
    load.add_argument(
        "--slowdown-factor",
        type=float,
        default=1.0,
        help="stretch the trace's time by this factor (%(default)s)",
    )
    load.add_argument("--slo", default="", help="objectives in ms, as ttft:1000,tpot:60")
    load.add_argument("--no-plain", action="store_true", help="do not measure plain decoding")
    load.add_argument("--no-adaptive", action="store_true", help="do not measure the controller")
    load.add_argument(
        "--max-lag-ms",
        type=float,
        default=10.0,
        help="largest delay of the generator (%(default)s)",
    )
    load.add_argument("--plot", type=Path, metavar="FILE", help="also write the plot")
    load.add_argument(
        "--figure", type=Path, metavar="FILE", help="write only the plot of tokens/s by rate"
    )
    _add_shared(load, "runs/load", add_write)

    step = kinds.add_parser("step", help="time from a load step to the new budget, and its cost")
    step.add_argument("--sources", nargs="+", default=["scrape", "prometheus"],
                      choices=["scrape", "prometheus"], help="sources of the controller's metrics (both)")  # fmt: skip
    step.add_argument("--low", type=float, default=0.4, help="lower rate per second (%(default)s)")
    step.add_argument(
        "--high", type=float, default=5.0, help="higher rate per second (%(default)s)"
    )
    step.add_argument("--steps", type=int, default=10, help="steps per direction (%(default)s)")
    step.add_argument("--hold", type=float, default=30.0, help="seconds at each rate (%(default)s)")
    _add_shared(step, "runs/step", add_write)

    soak = kinds.add_parser(
        "soak", help="a long load that rises and falls, with faults: failures, leaks, memory"
    )
    soak.add_argument("--seconds", type=float, default=1800.0, help="(%(default)s)")
    soak.add_argument(
        "--rate", type=float, default=1.5, help="mean requests per second (%(default)s)"
    )
    soak.add_argument(
        "--period", type=float, default=120.0, help="seconds of one rise and fall (%(default)s)"
    )
    soak.add_argument(
        "--abort-share",
        type=float,
        default=0.2,
        help="share of requests that the client cuts off (%(default)s)",
    )
    soak.add_argument("--sampled", type=int, default=40, help="answers to compare with plain decoding (%(default)s)")  # fmt: skip
    soak.add_argument(
        "--seed", type=int, default=0, help="seed of arrivals and faults (%(default)s)"
    )
    _add_shared(soak, "runs/soak", add_write)


def _add_shared(
    parser: argparse.ArgumentParser,
    out: str,
    add_write: Callable[[argparse.ArgumentParser], None],
) -> None:
    parser.add_argument(
        "--prompts", default="chat", help="a JSONL file or a data set (%(default)s)"
    )
    parser.add_argument(
        "--max-tokens", type=int, default=96, help="tokens per answer (%(default)s)"
    )
    parser.add_argument(
        "--dtype", default=default_dtype(), help="dtype of every server (%(default)s)"
    )
    parser.add_argument(
        "--policy", nargs="*", default=[], metavar="KEY=VALUE", help="policy keys of the controller"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(out), help="folder of the runs (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=31800, help="first of four ports (%(default)s)")
    parser.add_argument("--logs", type=Path, help="folder of the servers' logs (in the cache)")
    parser.add_argument(
        "--quick", action="store_true", help="very small sizes, to check that it works"
    )
    add_write(parser)
    parser.set_defaults(pass_through=True)


def section(args: argparse.Namespace) -> str:
    """The place of a table in a document: one for each kind of load."""
    kind: str = args.kind
    if kind != "load":
        return kind
    if args.batches or args.trace:
        return "load-batches" if args.batches else "load-trace"
    return "load" if args.arrivals == "poisson" else f"load-{args.arrivals}"


def points(args: argparse.Namespace, point: type[Point]) -> list[Point]:
    if args.trace:
        return [point("trace", 1.0)]
    if args.batches:
        return [point("batch", float(batch)) for batch in sorted(set(args.batches))]
    return [point("rate", rate) for rate in sorted(set(args.rates))]


def experiment(args: argparse.Namespace) -> Experiment:
    from loadtests.config import ConfigError
    from loadtests.experiment.experiment import Experiment
    from loadtests.options import config_of

    load = {"prompts": args.prompts, "max-tokens": str(args.max_tokens)}
    if args.kind == "load":
        load |= {
            "seconds": f"{args.seconds:g}", "warmup": f"{args.warmup:g}",
            "arrivals": "trace" if args.trace else args.arrivals,
            "max-lag-ms": f"{args.max_lag_ms:g}", "drain-timeout": f"{DRAIN_S:g}",
        }  # fmt: skip
        optional = {
            "trace": str(args.trace.resolve()) if args.trace else "",
            "slowdown-factor": f"{args.slowdown_factor:g}" if args.trace else "",
            "period": f"{args.period:g}" if args.period else "",
            "burstiness": f"{args.burstiness:g}" if args.burstiness else "",
            "slo": args.slo,
        }
        load |= {name: value for name, value in optional.items() if value}
    if args.kind == "step":
        load |= step_options(args)
    if args.kind == "soak":
        load |= {
            "arrivals": "diurnal", "rate": f"{args.rate:g}", "seconds": f"{args.seconds:g}",
            "period": f"{args.period:g}", "abort-share": f"{args.abort_share:g}",
            "seed": str(args.seed), "warmup": "0",
        }  # fmt: skip
    try:
        config_of({name.replace("-", "_"): value for name, value in load.items()})
    except ConfigError as error:
        raise UsageError(str(error)) from None
    return Experiment(args.dtype, load, tuple(args.rest), tuple(args.policy))


def step_options(args: argparse.Namespace) -> dict[str, str]:
    rates = ",".join(f"{args.low:g},{args.high:g}" for _ in range(args.steps))
    return {
        "prompts": args.prompts, "max-tokens": str(args.max_tokens), "arrivals": "step",
        "steps": rates, "seconds": f"{2 * args.steps * args.hold:g}", "warmup": "0",
        "metrics-interval": "0.5", "max-lag-ms": "1000",
    }  # fmt: skip


def check(args: argparse.Namespace) -> None:
    """UsageError for numbers that no experiment can have."""
    for name in ("rates", "seconds", "warmup", "period", "burstiness", "slowdown_factor", "low",
                 "high", "hold", "rate", "max_lag_ms", "batches", "tiers", "seeds", "steps",
                 "max_tokens", "sampled"):  # fmt: skip
        value = getattr(args, name, None)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and not (math.isfinite(number) and number > 0):
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} {number:g}: must be a number above 0")
    if bad := [one for one in args.policy if "=" not in one]:
        raise UsageError(f"--policy {bad[0]}: must be KEY=VALUE")
    if args.kind == "load" and args.warmup >= args.seconds:
        raise UsageError(
            f"--warmup {args.warmup:g}: must be shorter than --seconds {args.seconds:g}"
        )
    if args.kind == "load" and args.trace and not args.trace.is_file():
        raise UsageError(f"--trace {args.trace}: no such file")
    if args.kind == "load" and args.trace and args.batches:
        raise UsageError("--trace and --batches: choose one")
