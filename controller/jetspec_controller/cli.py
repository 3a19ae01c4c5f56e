"""The console script `jetspec-controller`: run, check-config, replay, explain, pin,
unpin, pause, resume.

Exit status: 0 for success, 1 for a failure while running, 2 for invalid arguments, 130 if
interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jetspec_controller import __version__, commands
from jetspec_controller.kube import KubernetesUnavailableError
from jetspec_controller.settings import Settings, SettingsError, load

logger = logging.getLogger(__name__)

URL = "http://127.0.0.1:30900"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format=LOG_FORMAT, stream=sys.stderr)
    try:
        status: int = options.command(options)
    except (SettingsError, ValueError) as error:
        print(f"jetspec-controller: {error}", file=sys.stderr)
        return 2
    except (OSError, sqlite3.Error, KubernetesUnavailableError) as error:
        print(f"jetspec-controller: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def flags(options: argparse.Namespace) -> dict[str, Any]:
    """The given flags, nested like the settings."""
    nested: dict[str, Any] = {}
    if options.target:
        nested["targets"] = options.target
    if options.prometheus is not None:
        nested["prometheus"] = {"url": options.prometheus}
    if options.interval is not None:
        nested["policy"] = {"interval_s": options.interval}
    api = {
        "port": options.port,
        "host": options.host,
        "token_file": options.token_file,
        "insecure": options.insecure or None,
    }
    given = {key: value for key, value in api.items() if value is not None}
    if given:
        nested["api"] = given
    if options.record is not None:
        nested["record"] = options.record
    return nested


def _settings(options: argparse.Namespace) -> Settings:
    return load(options.config, flags(options))


def _run(options: argparse.Namespace) -> int:
    from jetspec_controller.process import serve

    return asyncio.run(serve(_settings(options), options.config, flags(options)))


def _check_config(options: argparse.Namespace) -> int:
    from jetspec_controller.components import check_components
    from jetspec_controller.tokens import Tokens

    settings = _settings(options)
    Tokens.load(settings.api)
    asyncio.run(check_components(settings))
    print(settings.model_dump_json(indent=2) if options.show else f"valid: {settings.digest}")
    return 0


def _replay(options: argparse.Namespace) -> int:
    from jetspec_controller.replay import replay

    for line in replay(options.recording, options.policy, target=options.target):
        print(line)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from jetspec_controller.explain import explain

    print(asyncio.run(explain(options.url, options.target)))
    return 0


def _pin(options: argparse.Namespace) -> int:
    key = commands.token(options.token_file)
    call = commands.pin(
        options.url, key, options.target, options.budget, options.ttl, options.reason
    )
    print(asyncio.run(call))
    return 0


def _unpin(options: argparse.Namespace) -> int:
    key = commands.token(options.token_file)
    print(asyncio.run(commands.unpin(options.url, key, options.target)))
    return 0


def _pause(options: argparse.Namespace) -> int:
    key = commands.token(options.token_file)
    print(asyncio.run(commands.pause(options.url, key, paused=options.paused)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jetspec-controller",
        description="Sets the tree budget of JetSpec servers by their load.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error")
    )
    words = parser.add_subparsers(required=True, metavar="COMMAND")

    run = words.add_parser("run", help="control servers until stopped")
    run.set_defaults(command=_run)
    _add_settings(run)

    check = words.add_parser("check-config", help="say whether a configuration is valid")
    check.set_defaults(command=_check_config)
    check.add_argument("--show", action="store_true", help="print it with every default")
    _add_settings(check)

    replay = words.add_parser("replay", help="decide again on recorded observations")
    replay.set_defaults(command=_replay)
    replay.add_argument("recording", type=Path, help="the file that `record` names")
    replay.add_argument("--target", help="this server only")
    replay.add_argument(
        "--policy", type=_mapping, default={}, metavar="JSON", help="policy keys to change"
    )

    explain = words.add_parser("explain", help="why a server has its budget")
    explain.set_defaults(command=_explain)
    explain.add_argument("target", nargs="?", help="its id; default: every server")
    explain.add_argument("--url", default=URL, help="the controller")

    pin = words.add_parser("pin", help="fix a server's budget for some time")
    pin.set_defaults(command=_pin)
    pin.add_argument("target", help="its id, as `explain` shows it")
    pin.add_argument("budget", type=int, help="rounded down to a tier of the server")
    pin.add_argument(
        "--ttl",
        type=_duration,
        default=commands.seconds("15m"),
        metavar="TIME",
        help="how long: 90s, 15m, 2h, 1d (default: 15m)",
    )
    pin.add_argument("--reason", default="", help="kept in the audit log")

    unpin = words.add_parser("unpin", help="end a pin now")
    unpin.set_defaults(command=_unpin)
    unpin.add_argument("target", help="its id")

    pause = words.add_parser("pause", help="apply no decision to any server")
    pause.set_defaults(command=_pause, paused=True)
    resume = words.add_parser("resume", help="apply decisions again")
    resume.set_defaults(command=_pause, paused=False)
    for write in (pin, unpin, pause, resume):
        write.add_argument("--url", default=URL, help="the controller (%(default)s)")
        write.add_argument(
            "--token-file",
            type=Path,
            metavar="FILE",
            help=f"send the first token of this file; default: the variable {commands.TOKEN_VARIABLE}",
        )
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="a YAML file with the settings")
    parser.add_argument("--target", action="append", metavar="URL", help="a server; repeatable")
    parser.add_argument("--prometheus", metavar="URL", help="default: scrape the servers")
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (30900)")
    parser.add_argument("--interval", type=float, metavar="SECONDS", help="between ticks (2)")
    parser.add_argument("--token-file", type=Path, help="tokens that allow writes")
    parser.add_argument("--insecure", action="store_true", help="allow writes from anyone")
    parser.add_argument("--record", type=Path, help="append observations to this file")


def _duration(text: str) -> float:
    try:
        return commands.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return value


if __name__ == "__main__":
    sys.exit(main())
