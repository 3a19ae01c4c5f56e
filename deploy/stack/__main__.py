"""`python -m deploy.stack`: check everything, then become the supervisor of the whole stack.

Contract: takes what `jetspec serve` takes, and the flags below. A problem is one line on stderr
(exit status 1, 2 for the command line) before anything starts. If Prometheus is not installed, one
line says so and the rest runs. Everything stops at Ctrl-C, at SIGTERM, or when the server ends.
I/O: the data folder, ports; execs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.stack import demo, grafana, prometheus
from jetspec_sglang.cache import cache_dir
from jetspec_sglang.cli import serve
from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.cli.launch import DEFAULT_PORT
from jetspec_sglang.cli.ports import require_free
from jetspec_sglang.client.errors import CommandError, UsageError
from jetspec_sglang.host.quota import THREADS, usable_cpus

EPILOG = """\
Every other flag is passed to SGLang unchanged.

By default the controller reads metrics from the server: it sees a change of load within one or two
seconds. Through Prometheus (--controller-source prometheus) it sees the change one scrape later.
"""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make stack",
        usage='make stack ARGS="[--demo] [--plain] [--no-controller] [SGLANG FLAG ...]"',
        description="Start the server, controller, Prometheus with the rules, and Grafana if installed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    serve.add_arguments(parser)
    parser.add_argument(
        "--demo", action="store_true", help="send chat requests, 1 to 8 at a time, until the end"
    )
    parser.add_argument(
        "--prometheus-port", type=int, default=30910, help="port of Prometheus (%(default)s)"
    )
    parser.add_argument(
        "--grafana-port", type=int, default=30920, help="port of Grafana (%(default)s)"
    )
    parser.add_argument(
        "--retention", default="7d", help="how long Prometheus keeps data (%(default)s)"
    )
    parser.add_argument(
        "--data", type=Path, help="folder for data and logs (in the cache, one a server port)"
    )
    parser.add_argument(
        "--controller-source",
        choices=("server", "prometheus"),
        default="server",
        help="where the controller reads metrics (%(default)s)",
    )
    args, rest = parser.parse_known_args(argv)
    args.rest = rest
    return args


def run(args: argparse.Namespace) -> None:
    flags = Flags(args.rest)
    if flags.integer("--node-rank", 0) != 0:
        raise UsageError(
            "--node-rank: start the stack on the first node, and the others with `jetspec serve`"
        )
    port = flags.integer("--port", DEFAULT_PORT)
    _check_ports(args, port)
    folder = writable(args.data or cache_dir() / "stack" / str(port))
    monitored = prometheus.installed()
    if not monitored:
        _say("Prometheus is not installed (Debian: apt-get install prometheus); running without it")
    if not monitored and args.controller_source == "prometheus":
        raise CommandError("--controller-source prometheus needs Prometheus; leave the flag out")
    threads = leave_a_core()
    launch = serve.processes(args)
    controlled = bool(launch["companions"])
    if not controlled and args.controller_source == "prometheus":
        raise UsageError("--controller-source prometheus: this stack runs without a controller")
    if monitored:
        targets = {"sglang": launch["url"]}
        if controlled:
            targets["jetspec-controller"] = launch["companions"][0]["page"]
        targets["prometheus"] = f"http://127.0.0.1:{args.prometheus_port}"
        watcher = prometheus.companion(folder, args.prometheus_port, args.retention, targets)
        launch["companions"].append(watcher)
        if controlled and args.controller_source == "prometheus":
            launch["companions"][0]["command"] += ["--prometheus", watcher["page"]]
        if program := grafana.program():
            launch["companions"].append(
                grafana.companion(program, folder, args.grafana_port, watcher["page"])
            )
        else:
            _say("Grafana is not installed; `make preview` draws its dashboards to pictures")
    if args.demo:
        os.environ.update(demo.environment(flags))
        launch["companions"].append(demo.companion(launch["url"], folder))
    if threads:
        _say(f"{THREADS}={threads}: one core is left to the other processes")
    _say(f"data and logs in {folder}")
    serve.supervise(launch)


def leave_a_core() -> int | None:
    """On the host platform, leave one core to the other processes, unless OMP_NUM_THREADS is set.

    A server that uses every core becomes slower whenever Prometheus or the controller runs; in bfloat16
    and float16 many times slower, because OpenMP's threads wait for each other. Returns the threads that
    it set.
    """
    cores = usable_cpus()
    if cores < 2 or THREADS in os.environ or not serve.host_platform():
        return None
    os.environ[THREADS] = str(cores - 1)
    return cores - 1


def _check_ports(args: argparse.Namespace, port: int) -> None:
    """The stack's own ports are free, and no two of all are the same."""
    ports = {
        "--port": port,
        "--controller-port": args.controller_port,
        "--prometheus-port": args.prometheus_port,
        "--grafana-port": args.grafana_port,
    }
    seen: dict[int, str] = {}
    for flag, number in ports.items():
        if number in seen:
            raise UsageError(f"{flag} is {number}, and so is {seen[number]}: they must differ")
        seen[number] = flag
    require_free("127.0.0.1", args.prometheus_port, "--prometheus-port")
    require_free("127.0.0.1", args.grafana_port, "--grafana-port")


def writable(folder: Path) -> Path:
    """The folder as an absolute path, made where missing. CommandError if it cannot be written."""
    folder = folder.expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".written").touch()
    except OSError as error:
        raise CommandError(
            f"cannot write in {folder} ({error.strerror}); choose another folder with --data"
        ) from None
    (folder / ".written").unlink()
    return folder


def _say(text: str) -> None:
    print(f"jetspec stack: {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> int:
    try:
        run(parse(argv))
    except CommandError as error:
        _say(str(error))
        return error.status
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
