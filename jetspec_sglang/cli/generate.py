"""`jetspec generate`: one streamed chat answer from a running server, with its speed and τ.

Contract: the answer goes to stdout as it arrives, one line of figures goes to stderr. With
`--budget` the server's budget is changed for this answer and put back afterwards. I/O: HTTP only.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jetspec_sglang.budget import KEY
from jetspec_sglang.cli.budget import parse_values
from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError

if TYPE_CHECKING:
    from jetspec_sglang.client.server import Server

EXAMPLES = """\
examples:
  jetspec generate "Write a haiku about trees."
  jetspec generate "What is 17 * 23?" --budget 32 --max-tokens 64
  jetspec generate "What is 17 * 23?" --url http://127.0.0.1:31000 --temperature 0.7
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    from jetspec_sglang.client.server import DEFAULT_URL, add_key_arguments

    parser = subparsers.add_parser(
        "generate",
        help=COMMANDS["generate"].help,
        description="Ask a running server one question and print the answer as it arrives.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("prompt")
    parser.add_argument("--url", default=DEFAULT_URL, help="(%(default)s)")
    parser.add_argument("--budget", metavar="B", help="tree budget for this answer")
    parser.add_argument("--max-tokens", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="(%(default)s)")
    add_key_arguments(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from jetspec_sglang.client.server import connect

    server = connect(args.url, args)
    body = {
        "model": "default",
        "messages": [{"role": "user", "content": args.prompt}],
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "stream_options": {"include_usage": True},
        "return_spec_tokens_details": True,
    }
    if args.budget is None:
        answer(server, body)
    else:
        with budget_for_now(server, parse_values([args.budget])):
            answer(server, body)
    return 0


def answer(server: "Server", body: dict[str, Any]) -> None:
    """Print the answer on stdout and its figures on stderr."""
    start = time.perf_counter()
    arrivals: list[float] = []
    usage: dict[str, Any] = {}
    speculation: dict[str, Any] = {}
    for chunk in server.chat(body):
        usage = chunk.get("usage") or usage
        speculation = (chunk.get("sglext") or {}).get("spec_tokens_details") or speculation
        for choice in chunk.get("choices", []):
            if text := choice["delta"].get("content"):
                arrivals.append(time.perf_counter() - start)
                print(text, end="", flush=True)
    print(flush=True)
    print(figures(arrivals, usage.get("completion_tokens", 0), speculation), file=sys.stderr)


def figures(arrivals: list[float], tokens: int, speculation: dict[str, Any]) -> str:
    """One line: tokens, seconds, speed after the first chunk (seconds since the request), and τ."""
    if not arrivals:
        return f"{tokens} tokens"
    line = f"{tokens} tokens, first after {arrivals[0]:.2f} s"
    # A round's tokens come in one chunk, so only a stream of several chunks shows a speed.
    if len(arrivals) > 1 and tokens > 1:
        line += f", then {(tokens - 1) / (arrivals[-1] - arrivals[0]):.1f} tokens/s"
    rounds = speculation.get("spec_verify_ct")
    if rounds:
        return f"{line}, τ {speculation['spec_accept_length']:.2f} over {rounds} rounds"
    return f"{line}, no speculation"


@contextmanager
def budget_for_now(server: "Server", wanted: dict[str, int]) -> Iterator[None]:
    """Set the budget, and afterwards put back the budget and table that were there before.

    If somebody else set a budget meanwhile, this budget stays, and a line on stderr says so.
    """
    before = server.jetspec_states()[0]
    if not all(server.set_internal_state(wanted)):
        raise CommandError(f"{server.url} refused: {server.jetspec_states()[0]['last_refusal']}")
    try:
        yield
    finally:
        now = server.jetspec_states()[0]
        if now["budget"] == wanted[KEY] and not now["table"]:
            table = {f"{KEY}.{batch}": budget for batch, budget in (before["table"] or {}).items()}
            server.set_internal_state({KEY: before["budget"], **table})
        else:
            print(
                f"jetspec generate: the budget changed to {now['budget']}, table {now['table']}, "
                f"before the answer was complete. So the figures are not those of {wanted[KEY]}. If "
                "a controller changed it, start the server with `jetspec serve --no-controller`.",
                file=sys.stderr,
            )
