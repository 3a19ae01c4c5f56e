"""`jetspec doctor`: what is missing or wrong on this machine, and what to do about it.

Contract: prints one line per check (or JSON); exit status 0 when nothing failed, warnings included.
I/O: that of the checks; fetches only a head that is named by hub id.
"""

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.cli.launch import DEFAULT_PORT
from jetspec_sglang.client.errors import UsageError

if TYPE_CHECKING:
    from jetspec_sglang.cli.checks import Check

EXAMPLES = """\
examples:
  jetspec doctor
  jetspec doctor --json
  jetspec doctor --model-path /models/qwen3-8b --head /heads/jetspec-qwen3-8b --batch 32 --budget 256
"""
MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "doctor",
        help=COMMANDS["doctor"].help,
        description="Check versions, plugin registration, platform, compiler, head against target, "
        "and whether a batch fits in memory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model-path", metavar="FOLDER", help="target (default: the embedded one)")
    parser.add_argument(
        "--head", metavar="FOLDER", help="draft head (default: JETSPEC_HEAD, or the shipped one)"
    )
    parser.add_argument("--batch", type=int, default=16, help="concurrent requests (%(default)s)")
    parser.add_argument("--budget", type=int, help="largest tree budget (the platform's default)")
    parser.add_argument(
        "--context", type=int, default=2048, help="tokens per request (%(default)s)"
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="port to serve on (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the checks as a JSON list")
    return parser


def run(args: argparse.Namespace) -> int:
    from jetspec_sglang.cli.ports import require_port

    for name in ("batch", "budget", "context"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} is {value}: must be at least 1")
    require_port(args.port, "--port")
    checks = examine(args)
    if args.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        print_table(checks, sys.stdout.isatty())
    return 1 if any(check.status == "fail" for check in checks) else 0


def examine(args: argparse.Namespace) -> list["Check"]:
    """Every check that applies to this machine, in the order of the table."""
    from jetspec_sglang.cli import checks as machine
    from jetspec_sglang.cli import model_checks as models
    from jetspec_sglang.cli.checks import Check, guarded

    platform = guarded("platform", machine.check_platform)
    unknown = platform.status == "fail"
    host = platform.detail.startswith("host")
    found = [
        guarded("python", machine.check_python),
        guarded("sglang", machine.check_sglang),
        guarded("torch", machine.check_torch),
        guarded("plugin", machine.check_plugin),
        platform,
    ]
    if host:
        found += [
            guarded("cpu", machine.check_cpu),
            guarded("cpu quota", machine.check_quota),
            guarded("load", machine.check_load),
            guarded("native library", machine.check_native),
        ]
    elif not unknown:
        found.append(guarded("kernel tools", machine.check_kernel_tools))
    found += [
        guarded("controller", machine.check_controller),
        guarded("port", lambda: machine.check_port(args.port, "--port")),
    ]
    from jetspec_sglang import embedded
    from jetspec_sglang.budget import DEFAULT_MAX_BUDGET
    from jetspec_sglang.cli.memory import Demand

    device = "cpu" if host else "cuda"
    budget = args.budget or DEFAULT_MAX_BUDGET[device]
    if not unknown:
        found.append(guarded("settings", lambda: machine.check_settings(device, budget)))
    target_check, target = models.check_target(args.model_path)
    head_path = args.head or (embedded.head_path() if args.model_path is None else None)
    head_check, head = models.check_head(head_path, target, args.model_path)
    found += [target_check, head_check]
    if unknown:
        found.append(Check("memory", "warn", "not estimated: the platform is not known"))
    elif target is not None:
        load = Demand(
            batch=args.batch,
            context=args.context,
            budget=budget,
            element_bytes=4 if host else 2,
            packed=host,
        )
        found.append(
            guarded(
                "memory",
                lambda: models.check_memory(target, head, load, models.free_memory(host)),
            )
        )
    else:
        found.append(Check("memory", "warn", "not estimated: the target is not on this disk"))
    return found


def print_table(checks: list["Check"], colour: bool) -> None:
    """One line per check. If something is wrong, the next line says what to do."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = MARKS[check.status]
        if colour and check.status != "ok":
            mark = f"\033[1;3{'1' if check.status == 'fail' else '3'}m{mark}\033[0m"
        print(f"{mark} {check.name:<{width}}  {check.detail}")
        if check.status != "ok" and check.remedy:
            print(f"     {'':<{width}}  → {check.remedy}")
