"""`jetspec bench WHAT`: measurements as Markdown tables.

Contract: all but the kernels start and end their own servers. Exit status 1 when a limit
that the command states is not met. I/O: processes, HTTP, files that are asked for.
"""

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from jetspec_sglang.cli import ablations, conditioning, load, load_arguments
from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError, UsageError
from jetspec_sglang.host.dtype import default_dtype

EXAMPLES = """\
Flags that are not named here go to SGLang, for example --model-path; the head is JETSPEC_HEAD or
--speculative-draft-model-path.

examples:
  jetspec bench serve --quick
  jetspec bench serve --prompts gsm8k --json speed.json --plot speed.png
  jetspec bench round --batch 1 --budget 16
  jetspec bench curve --prompts gsm8k --requests 64
  jetspec bench ablations --config docs/ablations.json --target T --data answers \
      --answers gsm8k=held-out --out runs/ablations
  jetspec bench load --rates 0.5 1 2 4 --out runs/load      continues where it stopped
  jetspec bench serve --write docs/benchmarks.md      write the table into that page
"""
QUICK: dict[str, dict[str, Any]] = {
    "serve": {"repeats": 1, "requests": 2, "max_tokens": 32, "batches": [1, 4], "budgets": [16]},
    "methods": {"requests": 2, "max_tokens": 32, "budgets": [16]},
    "round": {"requests": 2, "max_tokens": 32},
    "curve": {"requests": 4, "max_tokens": 48},
    **load_arguments.QUICK,
}
_KERNELS = {
    "tree": "building trees",
    "attention": "the host's attention",
    "linear": "the host's linear layers",
    "neighbour": "these layers while another process takes one core",
}


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "bench",
        help=COMMANDS["bench"].help,
        description="Measure this machine; tables go to stdout as Markdown.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    speed = kinds.add_parser("serve", help="tokens/s of plain decoding, chains and trees")
    speed.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8])
    speed.add_argument("--budgets", nargs="+", type=int, default=[8, 16, 32, 64])
    speed.add_argument("--chains", nargs="*", type=int, default=[4, 8], metavar="B")
    speed.add_argument(
        "--dtypes", nargs="+", help="dtypes of plain decoding (float32 and the fastest)"
    )
    speed.add_argument("--jetspec-dtypes", nargs="+", default=[default_dtype()], metavar="DTYPE")
    speed.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    speed.add_argument(
        "--together",
        action="store_true",
        help="keep all servers up and alternate between them (memory for all of them)",
    )
    speed.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    speed.add_argument("--plot", type=Path, metavar="FILE", help="write a plot")
    _add_load(speed, requests=8, max_tokens=128)

    methods = kinds.add_parser("methods", help="every drafting method, per data set, in one table")
    methods.add_argument("--sets", nargs="+", default=["gsm8k", "mbpp", "chat"], metavar="SET")
    methods.add_argument("--dflash-head", metavar="HEAD", help="a bidirectional head to compare")
    methods.add_argument(
        "--equal-head", metavar="HEAD", help="a causal head trained like --dflash-head"
    )
    methods.add_argument("--eagle3-head", metavar="HEAD", help="an EAGLE-3 head (CUDA only)")
    methods.add_argument("--budgets", nargs="+", type=int, default=[8, 16, 32, 64])
    methods.add_argument("--chain", type=int, default=8, help="rows of a chain (%(default)s)")
    methods.add_argument("--batch", type=int, default=1, help="(%(default)s)")
    methods.add_argument("--dtype", default=default_dtype(), help="(%(default)s)")
    methods.add_argument("--repeats", type=int, default=1, help="(%(default)s)")
    _add_load(methods, requests=8, max_tokens=128)

    round_ = kinds.add_parser("round", help="where a round's time goes")
    round_.add_argument("--batch", type=int, default=1, help="(%(default)s)")
    round_.add_argument("--budget", type=int, default=16, help="(%(default)s)")
    round_.add_argument("--dtype", default=default_dtype(), help="(%(default)s)")
    round_.add_argument(
        "--limit", type=float, default=0.10, help="largest share outside GEMMs (%(default)s)"
    )
    _add_load(round_, requests=8, max_tokens=128)

    curve = kinds.add_parser("curve", help="τ(B') from one run at B against τ measured at B'")
    curve.add_argument("--largest", type=int, default=64, metavar="B", help="(%(default)s)")
    curve.add_argument("--budgets", nargs="+", type=int, default=[4, 8, 16, 32])
    curve.add_argument("--batch", type=int, default=4, help="(%(default)s)")
    curve.add_argument("--dtype", default=default_dtype(), help="(%(default)s)")
    curve.add_argument("--limit", type=float, default=0.03, help="largest difference (%(default)s)")
    _add_load(curve, requests=32, max_tokens=128)

    trained = kinds.add_parser("ablations", help="train heads that differ in one thing, compare τ")
    ablations.add_arguments(trained)
    _add_write(trained)

    asked = kinds.add_parser(
        "conditioning", help="measure the gain of drafts that depend on their path"
    )
    conditioning.add_arguments(asked)
    _add_write(asked)

    load_arguments.add_parsers(kinds, _add_write)

    for name, what in _KERNELS.items():
        kind = kinds.add_parser(name, help=f"{what}, in microseconds")
        if name != "neighbour":  # CPU time would leave the neighbour out
            kind.add_argument("--cpu-time", action="store_true", help="CPU time of one thread")
        _add_write(kind)
    return parser


def _add_load(parser: argparse.ArgumentParser, requests: int, max_tokens: int) -> None:
    parser.add_argument(
        "--prompts", default="chat", help="a JSONL file or a data set (%(default)s, built in)"
    )
    parser.add_argument("--requests", type=int, default=requests, help="a load (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=max_tokens, help="(%(default)s)")
    parser.add_argument("--port", type=int, default=31800, help="(%(default)s)")
    parser.add_argument("--logs", type=Path, help="folder of the servers' logs (in the cache)")
    parser.add_argument(
        "--quick", action="store_true", help="very small sizes, to check that it works"
    )
    _add_write(parser)
    parser.set_defaults(pass_through=True)


def _add_write(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the table into its section of FILE"
    )


def run(args: argparse.Namespace) -> int:
    if getattr(args, "quick", False):
        vars(args).update(QUICK[args.kind])
    _check_numbers(args)
    try:
        return _KINDS[args.kind](args)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


def _check_numbers(args: argparse.Namespace) -> None:
    for name in ("batch", "budget", "chain", "largest", "batches", "budgets", "chains", "repeats",
                 "requests", "max_tokens"):  # fmt: skip
        value = getattr(args, name, None)
        for number in value if isinstance(value, list) else [value]:
            least = 2 if name == "max_tokens" else 1
            if number is not None and number < least:
                raise UsageError(f"--{name.replace('_', '-')} {number}: must be {least} or more")


def _serve(args: argparse.Namespace) -> int:
    import json

    from tqdm import tqdm

    from jetspec_sglang.bench import report, speed
    from jetspec_sglang.client.measured import Launch, fleet

    dtypes = args.dtypes or list(dict.fromkeys(["float32", default_dtype()]))
    configs = [speed.Config(Launch(dtype, None), 0) for dtype in dtypes]
    for dtype in args.jetspec_dtypes:
        configs += [speed.Config(Launch(dtype, "chain"), budget) for budget in args.chains]
        configs += [speed.Config(Launch(dtype, "best_first"), budget) for budget in args.budgets]
    cells = speed.schedule(configs, args.batches, args.repeats, together=args.together)
    prompts = _prompts(args.prompts, max(args.requests, 2 * max(args.batches)))

    def of_batch(batch: int) -> list[str]:
        return prompts[: max(args.requests, 2 * batch)]

    samples: list[speed.Sample] = []
    with (
        fleet(args.rest, args.port, _logs(args), together=args.together) as servers,
        tqdm(total=len(cells), unit="measurement") as bar,
    ):

        def show(cell: speed.Cell) -> None:
            bar.set_description(f"{cell.config.name}, batch {cell.batch}")

        for sample in speed.measure_all(servers, cells, of_batch, args.max_tokens, show):
            samples.append(sample)
            bar.update()
            if args.json:  # after every sample, so that a run cut short leaves what it measured
                content = {
                    "machine": report.machine(),
                    "prompts": args.prompts,
                    "max_tokens": args.max_tokens,
                    "samples": [one.as_dict() for one in samples],
                }
                args.json.write_text(json.dumps(content, indent=1) + "\n")
    results = speed.summarise(samples)
    if args.plot:
        from jetspec_sglang.bench.speed_plot import plot_speeds

        plot_speeds(results, args.plot)
    note = (
        f"Tokens/s, prefill included: median (smallest-largest) of {args.repeats} repeats, and the "
        f"ratio to plain decoding of the same dtype. {args.prompts} prompts, {args.max_tokens} "
        "tokens each, T=0."
    )
    return _publish(args, speed.table(results), note)


def _methods(args: argparse.Namespace) -> int:
    import torch
    from tqdm import tqdm

    from jetspec_sglang.bench import methods

    planned = methods.comparison(
        head=None,
        dflash_head=args.dflash_head,
        budgets=args.budgets,
        chain=args.chain,
        cuda=torch.cuda.is_available(),
        eagle3=args.eagle3_head,
        equal_head=args.equal_head,
    )
    prompts = {name: _prompts(name, args.requests) for name in args.sets}
    with tqdm(unit="measurement") as bar:
        samples = []
        for sample in methods.measure(
            planned, prompts, dtype=args.dtype, batch=args.batch, max_tokens=args.max_tokens,
            repeats=args.repeats, flags=args.rest, port=args.port, logs=_logs(args),
            progress=bar.set_description,
        ):  # fmt: skip
            samples.append(sample)
            bar.update()
    note = (
        f"Batch {args.batch}, {args.dtype}, T=0, {args.requests} prompts per set, {args.max_tokens} "
        f"tokens each, median of {args.repeats} repeats; tokens/s with prefill, ratio to plain "
        "decoding of the same repeat."
    )
    return _publish(args, methods.table(planned, samples), note)


def _round(args: argparse.Namespace) -> int:
    from jetspec_sglang.bench import round as rounds
    from jetspec_sglang.client.measured import Launch, fleet

    with fleet(args.rest, args.port, _logs(args)) as servers:
        server, _ = servers.get(Launch(args.dtype, "best_first"))
        prompts = _prompts(args.prompts, max(args.requests, args.batch))
        result = rounds.measure(server, prompts, args.budget, args.batch, args.max_tokens)
    met = result.outside_gemms <= args.limit
    note = (
        f"Batch {args.batch}, B={args.budget}, {args.dtype}, {result.rounds} rounds, τ "
        f"{result.tau:.2f}. Outside draft and verify: {result.outside_gemms:.1%} of a round "
        f"(limit {args.limit:.0%}{'' if met else ', NOT MET'})."
    )
    _publish(args, rounds.table(result), note)
    return 0 if met else 1


def _curve(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from jetspec_sglang.bench import curve
    from jetspec_sglang.client.measured import Launch, fleet

    if too_large := [budget for budget in args.budgets if budget >= args.largest]:
        raise UsageError(f"--budgets {too_large[0]}: must be below --largest {args.largest}")
    with (
        fleet(args.rest, args.port, _logs(args)) as servers,
        tqdm(total=1 + len(args.budgets), unit="budget") as bar,
    ):
        server, _ = servers.get(Launch(args.dtype, "best_first"))

        def show(budget: int) -> None:
            bar.set_description(f"B={budget}")
            bar.update()

        points = curve.measure(
            server, _prompts(args.prompts, args.requests), args.largest, args.budgets,
            args.batch, args.max_tokens, show,
        )  # fmt: skip
    worst = max(abs(point.difference) for point in points)
    met = worst <= args.limit
    note = (
        f"{args.requests} {args.prompts} prompts, {args.max_tokens} tokens each, T=0, batch "
        f"{args.batch}, {args.dtype}. Largest difference {worst:.1%} (limit {args.limit:.0%}"
        f"{'' if met else ', NOT MET'})."
    )
    _publish(args, curve.table(points, args.largest), note)
    return 0 if met else 1


def _ablations(args: argparse.Namespace) -> int:
    return _publish(args, ablations.run(args), ablations.NOTE)


def _conditioning(args: argparse.Namespace) -> int:
    from jetspec_sglang.bench import report
    from jetspec_sglang.evaluation.conditioning import NOTE

    if args.limit < 2:
        raise UsageError(f"--limit {args.limit}: must be 2 or more")
    variants, reliability = conditioning.run(args)
    note = (
        f"{NOTE}\n\nShare of best candidates that are right / the head's mean probability for them:"
        f"\n\n{report.markdown(reliability)}"
    )
    return _publish(args, variants, note)


def _load(args: argparse.Namespace) -> int:
    run = {"load": load.run_load, "step": load.run_step, "soak": load.run_soak}[args.kind]
    return run(args, lambda rows, note: _publish(args, rows, note, load_arguments.section(args)))


def _kernel(args: argparse.Namespace) -> int:
    kind = import_module(f"jetspec_sglang.bench.{args.kind}")
    options = {"cpu_time": args.cpu_time} if "cpu_time" in args else {}
    return _publish(args, kind.table(**options), kind.NOTE)


_KINDS = {
    "serve": _serve, "methods": _methods, "round": _round, "curve": _curve,
    "ablations": _ablations, "conditioning": _conditioning,
    "load": _load, "step": _load, "soak": _load,
    **dict.fromkeys(_KERNELS, _kernel),
}  # fmt: skip


def _prompts(name: str, count: int) -> list[str]:
    """The first `count` prompts, from the beginning again where the set is smaller."""
    from jetspec_sglang.evaluation.datasets import load_prompts

    found = load_prompts(name)
    return [found[i % len(found)] for i in range(count)]


def _logs(args: argparse.Namespace) -> Path:
    from jetspec_sglang.cache import cache_dir

    return args.logs or cache_dir() / "bench"


def _publish(args: argparse.Namespace, rows: list[list[str]], note: str, section: str = "") -> int:
    """Print the table with its notes, and write it where asked to."""
    from jetspec_sglang.bench import report

    body = f"{report.markdown(rows)}\n\n{note}\n{report.machine_line()}"
    print(body)
    if args.write:
        report.write_section(args.write, section or args.kind, body)
    return 0
