"""`jetspec bench load`, `step` and `soak`: the experiments with request rates.

Contract: the arguments are those of `load_arguments`, the work is in `loadtests.experiment`, which
is imported when it runs. All three continue after an interruption. I/O: what the experiments do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspec_sglang.cli import load_arguments
from jetspec_sglang.client.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.experiment.cells import Cell, Point
    from loadtests.experiment.sweep import Sweep

Publish = Callable[[list[list[str]], str], int]


def run_load(args: argparse.Namespace, publish: Publish) -> int:
    """Measure the missing cells, write tables and plots."""
    _require_load_tests()
    from loadtests.experiment.cells import Point, plan, policies
    from loadtests.experiment.sweep import Sweep, summaries, unfinished

    load_arguments.check(args)
    points = load_arguments.points(args, Point)
    experiment = load_arguments.experiment(args)
    experiment.claim(args.out)
    with _fleet(args) as fleet:
        sweep = Sweep(experiment, fleet, args.out, args.port + 2)
        tiers = args.tiers or _known_tiers(args.out, sweep)
        chosen = policies(tiers, plain=not args.no_plain, adaptive=not args.no_adaptive)
        cells = plan(chosen, points, range(args.seeds))
        missing = unfinished(cells, args.out)
        print(f"{len(cells)} cells, {len(cells) - len(missing)} already finished", flush=True)
        _measure(sweep, missing, len(cells))
    return _report(args, points, summaries(cells, args.out), publish)


def _measure(sweep: Sweep, cells: Sequence[Cell], total: int) -> None:
    """With a bar that tells the time left."""
    from tqdm import tqdm

    from loadtests.experiment.sweep import measure_all
    from loadtests.figures import number

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
    from loadtests.report import write_all, write_figure, write_plot

    results = tables.with_speed(results)
    used = write_all([cell.folder(args.out) for cell in results], args.out)
    if args.plot:
        write_plot(used, args.plot)
    if args.figure:
        write_figure(used, args.figure)
    slo = any("request_goodput" in one for one in results.values())
    metrics = [one for one in tables.METRICS if slo or one != "request_goodput"]
    parts = [markdown(tables.by_policy(results, points, one)) for one in metrics[1:]]
    if not args.no_adaptive:
        for metric in (tables.SPEED, "median_tpot_ms", *(["request_goodput"] * slo)):
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
        f"{args.dtype}, T=0. Median (smallest-largest) over the seeds. The best static budget of "
        "each load is chosen after the measurement. Tokens/s: up to the last answer where every policy "
        "keeps up, else within the window of the arrivals."
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
    tiers: list[int] = json.loads(file.read_text())
    return tiers


def run_step(args: argparse.Namespace, publish: Publish) -> int:
    """Measure the sources that are missing and show the times."""
    _require_load_tests()
    from loadtests.experiment import step
    from loadtests.experiment.sweep import Sweep

    load_arguments.check(args)
    experiment = load_arguments.experiment(args)
    experiment.claim(args.out)
    with _fleet(args) as fleet:
        sweep = Sweep(experiment, fleet, args.out, args.port + 2)
        for source in args.sources:
            if not step.finished(args.out, source):
                print(f"{source}: {2 * args.steps * args.hold:.0f} s", flush=True)
                step.measure(
                    sweep, source, args.out, load_arguments.step_options(args), args.port + 2
                )
    found = {source: step.read(args.out, source, args.hold) for source in args.sources}
    note = (
        f"The request rate alternates between {args.low:g} and {args.high:g} per second, {args.hold:g} s "
        "each. First: time from the step to the first change of the budget in the right direction. "
        "Settled: time to the budget that the rest of the phase ran at. The budget is read from the "
        "engine twice per second.\n\n"
        + "\n\n".join(step.cost_note(source, result) for source, result in found.items())
    )
    return publish(step.table(found), note)


def run_soak(args: argparse.Namespace, publish: Publish) -> int:
    """Run what is missing of the soak and judge it."""
    _require_load_tests()
    from loadtests.experiment import soak
    from loadtests.experiment.sweep import Sweep

    load_arguments.check(args)
    experiment = load_arguments.experiment(args)
    experiment.claim(args.out)
    with _fleet(args, together=False) as fleet:
        sweep = Sweep(experiment, fleet, args.out, args.port + 2)
        plan = soak.Plan(args.seconds, args.rate, args.seed, args.sampled, args.port + 2)
        result = soak.run(sweep, plan, args.out, experiment.load)
    return publish(soak.table(result), soak.note(result)) or (0 if result["passed"] else 1)


@contextmanager
def _fleet(args: argparse.Namespace, *, together: bool = True) -> Iterator[Any]:
    from jetspec_sglang.cache import cache_dir
    from jetspec_sglang.client.measured import fleet

    logs = args.logs or cache_dir() / "bench"
    with fleet(args.rest, args.port, logs, together=together) as servers:
        yield servers


def _require_load_tests() -> None:
    from importlib.util import find_spec

    for package, remedy in (
        ("loadtests", "run from a checkout, after `make install`"),
        ("locust", "pip install 'jetspec-sglang[loadtest]'"),
    ):
        if find_spec(package) is None:
            raise CommandError(f"the package {package} is not installed; {remedy}")
