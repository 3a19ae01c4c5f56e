"""`jetspec serve`: stock SGLang with JetSpec, and the budget controller beside it.

Contract: checks what can be checked quickly (model, head, ports), then becomes SGLang's server
(`--no-controller`, `--plain`) or a small process that runs server and controller together. I/O: may
fetch the embedded target; reads the head's headers; opens the ports to see if they are free, and a
lock, so that a second launch cannot take the port; execs.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from jetspec_sglang import families
from jetspec_sglang.cli import controller
from jetspec_sglang.cli.checks import check_load
from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.cli.launch import (
    DEFAULT_PORT,
    EMBEDDED_NAME,
    HEAD,
    MAX_BUDGET,
    MODEL,
    interpreter_arguments,
    sglang_arguments,
    wants_jetspec,
)
from jetspec_sglang.cli.ports import hold, require_free
from jetspec_sglang.client.errors import CommandError, UsageError
from jetspec_sglang.host.dtype import default_dtype
from jetspec_sglang.host.quota import fit_threads

EXAMPLES = """\
Every other flag is passed to SGLang unchanged; `python -m sglang.launch_server --help` lists them.

examples:
  jetspec serve
  jetspec serve --plain                          the same without speculation, to compare
  jetspec serve --port 31000 --speculative-num-draft-tokens 32
  jetspec serve --model-path Qwen/Qwen3-8B \\
      --speculative-draft-model-path JetSpec/jetspec-qwen3-8b
"""

NO_HEAD = "name one with --speculative-draft-model-path, or serve without speculation with --plain"
NO_EMBEDDED_HEAD = (
    "set JETSPEC_HEAD to a head's folder or hub id, train one with `jetspec train`, or serve "
    "without speculation with --plain"
)
"""What to do where no head is named."""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "serve",
        help=COMMANDS["serve"].help,
        usage="jetspec serve [--plain] [--no-controller] [--controller-port PORT] "
        "[--server-log FILE] [SGLANG FLAG ...]",
        description="Serve a model (default: the embedded SmolLM2-135M-Instruct) over SGLang's "
        "OpenAI-compatible API, decoding with JetSpec trees.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_arguments(parser)
    parser.set_defaults(pass_through=True)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags that `processes` reads; all others are SGLang's."""
    parser.add_argument(
        "--plain", action="store_true", help="same target and platform, without speculation"
    )
    parser.add_argument(
        "--no-controller", action="store_true", help="do not start the budget controller"
    )
    parser.add_argument(
        "--controller-port", type=int, default=30900, help="port of the controller (%(default)s)"
    )
    parser.add_argument(
        "--server-log",
        metavar="FILE",
        help="log file for SGLang's own lines; - is this terminal (default: the terminal if the "
        "server runs alone, else a file in the cache folder, whose name is shown at the start)",
    )


def run(args: argparse.Namespace) -> int:
    launch = processes(args)
    if not launch["companions"]:
        become(launch["server"])
    supervise(launch)


def processes(args: argparse.Namespace) -> dict[str, Any]:
    """The plan for `supervise`: the server and, unless it is switched off, its controller.

    Checks everything that can be checked quickly, takes the server's port, and sets the variables
    that the processes need.
    """
    argv = args.rest
    if argv and not argv[0].startswith("-"):
        argv = ["--model-path", *argv]
    flags = Flags(argv)
    jetspec = wants_jetspec(flags, args.plain)
    port = flags.integer("--port", DEFAULT_PORT)
    require_free(flags.value("--host") or "127.0.0.1", port, "--port")
    controlled = jetspec and not args.no_controller
    if controlled:
        require_free("127.0.0.1", args.controller_port, "--controller-port")
    hold(port, "--port")
    host = host_platform()
    if jetspec:
        _check_budgets(flags, host)
    target, head = _model_and_head(flags, jetspec)
    server = [sys.executable, *interpreter_arguments(host)]
    server += sglang_arguments(
        flags,
        model=target,
        head=head,
        jetspec=jetspec,
        host_dtype=default_dtype() if host else None,
    )
    # Tools of this environment, such as ninja for FlashInfer's kernels, need not be activated.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ.setdefault(families.VARIABLE, families.PACKAGE)
    if controlled and (reason := controller.obstacle(flags)):
        print(f"jetspec serve: serving without the controller: {reason}", file=sys.stderr)
        controlled = False
    if host and (threads := fit_threads(os.environ)):
        print(
            f"jetspec serve: {threads} threads, to fit this container's CPU quota", file=sys.stderr
        )
    if host and (load := check_load()).status != "ok":
        print(f"jetspec serve: {load.detail}; {load.remedy}", file=sys.stderr)
    url = controller.server_url(flags, port)
    companions = []
    if controlled:
        os.environ.update(controller.environment(flags, port))
        companions.append(controller.companion(url, args.controller_port))
    return {
        "server": server,
        "url": url,
        "log": _log_file(args.server_log, port),
        "told": {
            "model": flags.value(*MODEL) or f"{EMBEDDED_NAME} ({target})",
            **({"head": flags.value(HEAD) or head} if jetspec else {}),
        },
        "companions": companions,
    }


def supervise(launch: dict[str, Any]) -> NoReturn:
    """Become the process that runs the server and its companions."""
    become([sys.executable, "-m", "jetspec_sglang.client.supervise", json.dumps(launch)])


def _log_file(given: str | None, port: int) -> str | None:
    """An empty log file for the server; None for the terminal. CommandError if it cannot be
    created."""
    from jetspec_sglang.cache import cache_dir

    if given == "-":
        return None
    file = Path(given) if given else cache_dir() / "serve" / f"{port}.log"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    except OSError as error:
        if given is None:
            return None
        raise CommandError(f"--server-log {file}: {error.strerror}") from None
    return str(file.absolute())


def _model_and_head(flags: Flags, jetspec: bool) -> tuple[str | None, str | None]:
    """What to add to the command line: (the embedded target, its head). None if the flag is
    given."""
    from jetspec_sglang import embedded
    from jetspec_sglang.cli.models import check_model, require_head

    model, head = flags.value(*MODEL), flags.value(HEAD)
    if model is not None:
        check_model(model, flags.value("--revision"))
    chosen = head or (embedded.head_path() if model is None else None)
    if jetspec and chosen is None:
        remedy = NO_EMBEDDED_HEAD if model is None else NO_HEAD
        raise CommandError(f"no draft head for {model or 'the embedded model'}: {remedy}")
    target = None
    if model is None:
        try:
            target = str(embedded.target_path())
        except embedded.EmbeddedError as error:
            raise CommandError(str(error)) from None
    if jetspec and chosen is not None:
        for finding in require_head(chosen, model or target):
            print(f"jetspec serve: draft head: {finding}; {finding.remedy}", file=sys.stderr)
    return target, chosen if jetspec and head is None else None


def host_platform() -> bool:
    """Whether the server will run on the host platform. CommandError for bad variables."""
    from jetspec_sglang.host.activation import HOST_PLATFORM, activate
    from jetspec_sglang.settings import Settings

    try:
        Settings.from_environment()
        return activate() == HOST_PLATFORM
    except ValueError as error:
        raise CommandError(str(error)) from None


def _check_budgets(flags: Flags, host: bool) -> None:
    """Refuse early what SGLang's start would refuse later: a bad largest budget, or settings above
    it."""
    from jetspec_sglang.budget import DEFAULT_MAX_BUDGET, TreeBudget
    from jetspec_sglang.settings import MAX_BUDGET_LIMIT, Settings

    device = "cpu" if host else "cuda"
    largest = flags.integer(MAX_BUDGET, DEFAULT_MAX_BUDGET[device])
    if not 1 <= largest <= MAX_BUDGET_LIMIT:
        raise UsageError(f"{MAX_BUDGET} {largest}: must be from 1 to {MAX_BUDGET_LIMIT}")
    try:
        TreeBudget.from_settings(Settings.from_environment(), device, largest)
    except ValueError as error:
        raise CommandError(str(error)) from None


def become(command: list[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], command)
