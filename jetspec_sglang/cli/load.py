"""`jetspec bench load`, `step` and `soak`: the experiments with request rates.

Contract: arguments here, the work in `loadtests.experiment`, which is imported when it runs. All
three go on where a killed run stopped. I/O: what the experiments do.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspec_sglang.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.experiment.cells import Cell, Point
    from loadtests.experiment.settings import Experiment
    from loadtests.experiment.sweep import Sweep

QUICK: dict[str, dict[str, Any]] = {
    "load": {"rates": [1.0, 4.0], "seeds": 1, "seconds": 8.0, "warmup": 2.0, "tiers": [1, 16],
             "max_tokens": 24},
    "step": {"steps": 2, "hold": 10.0, "max_tokens": 24},
    "soak": {"seconds": 40.0, "max_tokens": 24, "sampled": 4},
}  # fmt: skip
Publish = Callable[[list[list[str]], str], int]


def add_parsers(kinds: Any, add_write: Callable[[argparse.ArgumentParser], None]) -> None:
    """The three subcommands of `jetspec bench`."""
    load = kinds.add_parser("load", help="plain, static and adaptive budgets at request rates")
    load.add_argument("--rates", nargs="+", type=float, default=[0.25, 0.5, 1, 2, 3, 4, 6],
                      help="requests per second (%(default)s)")  # fmt: skip
    load.add_argument("--batches", nargs="+", type=int, metavar="N",
                      help="closed loop of N clients in place of rates, beside the paper's table")  # fmt: skip
    load.add_argument("--tiers", nargs="+", type=int, metavar="B", help="(all of the server's)")
    load.add_argument("--seeds", type=int, default=3, help="repeats, each with its own arrivals (%(default)s)")  # fmt: skip
    load.add_argument(
        "--seconds", type=float, default=60.0, help="arrivals of a cell (%(default)s)"
    )
    load.add_argument("--warmup", type=float, default=10.0, help="of them left out (%(default)s)")
    load.add_argument("--arrivals", default="poisson", help="as of the locustfile (%(default)s)")
    load.add_argument("--period", type=float, help="seconds of a diurnal wave")
    load.add_argument("--burstiness", type=float, help="shape of gamma gaps")
    load.add_argument("--trace", type=Path, metavar="FILE", help="replay a trace in place of rates")
    load.add_argument(
        "--slowdown-factor", type=float, default=1.0, help="of the trace (%(default)s)"
    )
    load.add_argument("--slo", default="", help="objectives in ms, as ttft:1000,tpot:60")
    load.add_argument("--no-plain", action="store_true", help="leave plain decoding out")
    load.add_argument("--no-adaptive", action="store_true", help="leave the controller out")
    load.add_argument(
        "--max-lag-ms", type=float, default=10.0, help="of the generator (%(default)s)"
    )
    load.add_argument("--plot", type=Path, metavar="FILE", help="write the plot there too")
    _add_shared(load, "runs/load", add_write)

    step = kinds.add_parser("step", help="time from a load step to the new budget, and its cost")
    step.add_argument("--sources", nargs="+", default=["scrape", "prometheus"],
                      choices=["scrape", "prometheus"], help="of the controller's metrics (both)")  # fmt: skip
    step.add_argument("--low", type=float, default=0.4, help="requests per second (%(default)s)")
    step.add_argument("--high", type=float, default=5.0, help="(%(default)s)")
    step.add_argument("--steps", type=int, default=10, help="of each direction (%(default)s)")
    step.add_argument("--hold", type=float, default=30.0, help="seconds at each rate (%(default)s)")
    _add_shared(step, "runs/step", add_write)

    soak = kinds.add_parser(
        "soak", help="a long swinging load with faults: failures, leaks, memory"
    )
    soak.add_argument("--seconds", type=float, default=1800.0, help="(%(default)s)")
    soak.add_argument(
        "--rate", type=float, default=1.5, help="mean requests per second (%(default)s)"
    )
    soak.add_argument(
        "--period", type=float, default=120.0, help="of the swing, seconds (%(default)s)"
    )
    soak.add_argument(
        "--abort-share", type=float, default=0.2, help="cut off by the client (%(default)s)"
    )
    soak.add_argument("--sampled", type=int, default=40, help="answers compared with plain ones (%(default)s)")  # fmt: skip
    soak.add_argument("--seed", type=int, default=0, help="of arrivals and faults (%(default)s)")
    _add_shared(soak, "runs/soak", add_write)


def _add_shared(
    parser: argparse.ArgumentParser,
    out: str,
    add_write: Callable[[argparse.ArgumentParser], None],
) -> None:
    parser.add_argument(
        "--prompts", default="chat", help="a JSONL file or a data set (%(default)s)"
    )
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer (%(default)s)")
    parser.add_argument("--dtype", default="float32", help="of every server (%(default)s)")
    parser.add_argument(
        "--policy", nargs="*", default=[], metavar="KEY=VALUE", help="controller keys"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(out), help="folder of the runs (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=31800, help="first of four (%(default)s)")
    parser.add_argument("--logs", type=Path, help="folder of the servers' logs (in the cache)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    add_write(parser)
    parser.set_defaults(pass_through=True)


def section(args: argparse.Namespace) -> str:
    """The place of a table in a document: one for each kind of load."""
    if args.kind != "load":
        return args.kind
    if args.batches or args.trace:
        return "load-batches" if args.batches else "load-trace"
    return "load" if args.arrivals == "poisson" else f"load-{args.arrivals}"


def run_load(args: argparse.Namespace, publish: Publish) -> int:
    """Measure the missing cells, write tables and plots."""
    _require_load_tests()
    from loadtests.experiment.cells import Point, plan, policies
    from loadtests.experiment.sweep import Sweep, summaries, unfinished

    _check(args)
    points = _points(args, Point)
    experiment = _experiment(args)
    experiment.claim(args.out)
    with _fleet(args) as fleet:
        sweep = Sweep(experiment, fleet, args.out, args.port + 2)
        tiers = args.tiers or _known_tiers(args.out, sweep)
        chosen = policies(tiers, plain=not args.no_plain, adaptive=not args.no_adaptive)
        cells = plan(chosen, points, range(args.seeds))
        missing = unfinished(cells, args.out)
        print(f"{len(cells)} cells, {len(cells) - len(missing)} finished before", flush=True)
        _measure(sweep, missing, len(cells))
    return _report(args, points, summaries(cells, args.out), publish)


def _measure(sweep: Sweep, cells: Sequence[Cell], total: int) -> None:
    """With a bar that tells the time left."""
    from tqdm import tqdm

    from loadtests.experiment.sweep import measure_all
    from loadtests.report import number

    with tqdm(total=total, initial=total - len(cells), unit="cell", smoothing=0.1) as bar:

        def done(cell: Cell, summary: dict[str, Any]) -> None:
            state = "" if summary["valid"] else f", REJECTED: {summary['rejected_because'][0]}"
            bar.write(
                f"{cell.point.name} seed {cell.seed} {cell.policy.name}: "
                f"{number(summary['window_output_throughput'])} tok/s, TPOT p50 "
                f"{number(summary['median_tpot_ms'])} ms, failed {summary['failed']}, generator "
                f"{summary['load_generator_cpu_share']:.3f} cores{state}"
            )
            bar.update()

        measure_all(sweep, cells, done)


def _report(
    args: argparse.Namespace,
    points: Sequence[Point],
    results: dict[Cell, dict[str, Any]],
    publish: Publish,
) -> int:
    from jetspec_sglang.bench.report import markdown
    from loadtests.experiment import tables
    from loadtests.sweep import write_all, write_plot

    used = write_all([cell.folder(args.out) for cell in results], args.out)
    if args.plot:
        write_plot(used, args.plot)
    slo = any("request_goodput" in one for one in results.values())
    metrics = [one for one in tables.METRICS if slo or one != "request_goodput"]
    parts = [markdown(tables.by_policy(results, points, one)) for one in metrics[1:]]
    if not args.no_adaptive:
        for metric in ("window_output_throughput", "median_tpot_ms", *(["request_goodput"] * slo)):
            name = tables.METRICS[metric]
            parts += [
                f"Adaptive against the best static budget and plain decoding, {name} "
                "(above 1: adaptive is better):",
                markdown(tables.comparison(results, points, metric)),
                markdown(tables.whole_sweep(results, points, metric)),
            ]
    if args.batches:
        parts += [markdown(tables.beside_paper(results, points)), tables.PAPER_SOURCE]
    note = (
        f"{args.seeds} seeds, {args.seconds:g} s of {'clients' if args.batches else 'arrivals'} each, "
        f"the first {args.warmup:g} s left out; {args.prompts} prompts, {args.max_tokens} tokens, "
        f"{args.dtype}, T=0. Median (smallest-largest) over the seeds. The best static budget is "
        "chosen after the fact, at each load."
    )
    body = "\n\n".join([*parts, note, " ".join(tables.notes(results))])
    status = publish(tables.by_policy(results, points, metrics[0]), body)
    failed = sum(one["failed"] + one["warmup_failed"] for one in results.values())
    rejected = sum(not one["valid"] for one in results.values())
    return 1 if failed or rejected else status


def _known_tiers(out: Path, sweep: Sweep) -> list[int]:
    """The server's tiers, asked once for an experiment."""
    import json

    file = out / "tiers.json"
    if not file.exists():
        file.write_text(json.dumps(sweep.tiers()) + "\n")
    return json.loads(file.read_text())


def run_step(args: argparse.Namespace, publish: Publish) -> int:
    """Measure the sources that are missing and show the times."""
    _require_load_tests()
    from loadtests.experiment import step
    from loadtests.experiment.sweep import Sweep

    _check(args)
    experiment = _experiment(args)
    experiment.claim(args.out)
    with _fleet(args) as fleet:
        sweep = Sweep(experiment, fleet, args.out, args.port + 2)
        for source in args.sources:
            if not step.finished(args.out, source):
                print(f"{source}: {2 * args.steps * args.hold:.0f} s", flush=True)
                step.measure(sweep, source, args.out, _step_options(args), args.port + 2)
    found = {source: step.read(args.out, source, args.hold) for source in args.sources}
    note = (
        f"Request rates {args.low:g} and {args.high:g} per second in turn, {args.hold:g} s each. "
        "First: from the step to the first change of the budget in the right direction; settled: to "
        "the budget that the rest of the phase ran at. Read from the engine twice a second.\n\n"
        + "\n\n".join(step.cost_note(source, result) for source, result in found.items())
    )
    return publish(step.table(found), note)


def run_soak(args: argparse.Namespace, publish: Publish) -> int:
    """Run what is missing of the soak and judge it."""
    _require_load_tests()
    from loadtests.experiment import soak
    from loadtests.experiment.sweep import Sweep

    _check(args)
    experiment = _experiment(args)
    experiment.claim(args.out)
    with _fleet(args, together=False) as fleet:
        sweep = Sweep(experiment, fleet, args.out, args.port + 2)
        plan = soak.Plan(args.seconds, args.rate, args.seed, args.sampled, args.port + 2)
        result = soak.run(sweep, plan, args.out, experiment.load)
    return publish(soak.table(result), soak.note(result)) or (0 if result["passed"] else 1)


def _points(args: argparse.Namespace, point: type[Point]) -> list[Point]:
    if args.trace:
        return [point("trace", 1.0)]
    if args.batches:
        return [point("batch", float(batch)) for batch in sorted(set(args.batches))]
    return [point("rate", rate) for rate in sorted(set(args.rates))]


def _experiment(args: argparse.Namespace) -> Experiment:
    from loadtests.config import ConfigError
    from loadtests.experiment.settings import Experiment
    from loadtests.options import config_of

    load = {"prompts": args.prompts, "max-tokens": str(args.max_tokens)}
    if args.kind == "load":
        load |= {
            "seconds": f"{args.seconds:g}", "warmup": f"{args.warmup:g}",
            "arrivals": "trace" if args.trace else args.arrivals,
            "max-lag-ms": f"{args.max_lag_ms:g}",
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
        load |= _step_options(args)
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


def _step_options(args: argparse.Namespace) -> dict[str, str]:
    rates = ",".join(f"{args.low:g},{args.high:g}" for _ in range(args.steps))
    return {
        "prompts": args.prompts, "max-tokens": str(args.max_tokens), "arrivals": "step",
        "steps": rates, "seconds": f"{2 * args.steps * args.hold:g}", "warmup": "0",
        "metrics-interval": "0.5", "max-lag-ms": "1000",
    }  # fmt: skip


@contextmanager
def _fleet(args: argparse.Namespace, *, together: bool = True) -> Iterator[Any]:
    from jetspec_sglang.bench.servers import fleet
    from jetspec_sglang.cache import cache_dir

    logs = args.logs or cache_dir() / "bench"
    with fleet(args.rest, args.port, logs, together=together) as servers:
        yield servers


def _check(args: argparse.Namespace) -> None:
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


def _require_load_tests() -> None:
    from importlib.util import find_spec

    for package, remedy in (
        ("loadtests", "run from a checkout, after `make install`"),
        ("locust", "pip install 'jetspec-sglang[loadtest]'"),
    ):
        if find_spec(package) is None:
            raise CommandError(f"the package {package} is not installed; {remedy}")
