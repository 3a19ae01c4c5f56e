"""`jetspec budget get|set`: the tree budget of a running server.

Contract: `set` succeeds only when every data-parallel rank took the values, and prints what the
server then reads back. I/O: HTTP only.
"""

import argparse
import json
from typing import Any

from jetspec_sglang.budget import KEY
from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError, UsageError

EXAMPLES = """\
examples:
  jetspec budget get
  jetspec budget set 64                 64 nodes per request per round, at any load
  jetspec budget set 64 8=32 16=8       32 with 8 or more running requests, 8 with 16 or more
  jetspec budget set 1                  plain decoding
  jetspec budget set http://127.0.0.1:31000 32 --admin-api-key-file key
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    from jetspec_sglang.client.server import DEFAULT_URL, add_key_arguments

    parser = subparsers.add_parser(
        "budget",
        help=COMMANDS["budget"].help,
        description="Read or change the tree budget B (nodes verified per request per round, root "
        "included) of a running server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="get|set", required=True)
    get = actions.add_parser("get", help="print budget, table and limits")
    get.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="URL", help="(%(default)s)")
    get.add_argument("--url", dest="url", default=argparse.SUPPRESS, help="the same as a flag")
    get.add_argument("--json", action="store_true", help="print the read-back as JSON")
    change = actions.add_parser(
        "set",
        usage="jetspec budget set [--url] [URL] VALUE [VALUE ...] [--admin-api-key-file FILE]",
        help="change it while the server runs",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    change.add_argument(
        "values",
        nargs="+",
        metavar="VALUE",
        help=f"B for any load, N=B for N or more running requests; URL defaults to {DEFAULT_URL}",
    )
    change.add_argument("--url", help="the server's address as a flag")
    for sub in (get, change):
        add_key_arguments(sub)
    return parser


def run(args: argparse.Namespace) -> int:
    from jetspec_sglang.client.server import DEFAULT_URL, connect

    if args.action == "get":
        states = connect(args.url, args).jetspec_states()
        print(json.dumps(states, indent=2) if args.json else "\n".join(map(describe, states)))
        return 0
    words = list(args.values)
    url = words.pop(0) if "://" in words[0] else args.url or DEFAULT_URL
    values = parse_values(words)
    server = connect(url, args)
    server.jetspec_states()
    taken = server.set_internal_state(values)
    states = server.jetspec_states()
    if not all(taken):
        reasons = {str(state.get("last_refusal")) for state in states}
        raise CommandError(f"{server.url} refused: {'; '.join(sorted(reasons))}")
    print("\n".join(map(describe, states)))
    return 0


def parse_values(words: list[str]) -> dict[str, int]:
    """`["64", "8=32"]` as the server's keys. Raises UsageError that names the word at fault."""
    values: dict[str, int] = {}
    for word in words:
        batch, equals, budget = word.rpartition("=")
        numbers = [budget, *([batch] if equals else [])]
        if not all(n.isascii() and n.isdigit() and int(n) >= 1 for n in numbers):
            raise UsageError(f"{word!r} is neither B nor N=B with whole numbers from 1")
        key = f"{KEY}.{int(batch)}" if equals else KEY
        if key in values:
            raise UsageError(f"{word!r} sets the same budget twice")
        values[key] = int(budget)
    if not values:
        raise UsageError("no budget given")
    return values


def describe(state: dict[str, Any]) -> str:
    """One line of a rank's read-back."""
    table = ", ".join(f"from {batch} requests {budget}" for batch, budget in _entries(state))
    tiers = ",".join(str(tier) for tier in state["tiers"])
    return (
        f"budget {state['budget']}{f' ({table})' if table else ''}, at most {state['max_budget']}, "
        f"tiers {tiers}, width {state['width']}, block {state['block_size']}, "
        f"{state['rounds']} rounds"
    )


def _entries(state: dict[str, Any]) -> list[tuple[int, int]]:
    return sorted((int(batch), int(budget)) for batch, budget in (state["table"] or {}).items())
