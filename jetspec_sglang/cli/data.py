"""`jetspec data`: let the served target answer prompts, and store the token ids for training.

Contract: needs a running server (`jetspec serve --plain`); resumable, same command again. Output:
shards of token ids, `provenance.json`, and for prompts that the target wrote itself
`<source>-prompts.jsonl`.
"""

import argparse
import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspec_sglang.cli.commands import COMMANDS, Subparsers
from jetspec_sglang.client.errors import CommandError, UsageError

if TYPE_CHECKING:
    from jetspec_sglang.training.prompts import HeldOut

EXAMPLES = """\
examples:
  jetspec data --prompts gsm8k_train --out answers
  jetspec data --prompts questions.jsonl --licence CC0 --out answers --max-new-tokens 512
  jetspec data --self-written 2000 --out answers      without outside data
  jetspec data --prompts gsm8k --evaluation --limit 64 --out held-out
"""


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    from jetspec_sglang.client.server import DEFAULT_URL, add_key_arguments

    parser = subparsers.add_parser(
        "data",
        help=COMMANDS["data"].help,
        description="Let the served target answer prompts; keep the token ids for training.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--prompts",
        metavar="SET",
        help="a JSONL file, a folder of them, a named data set, or with --hub a hub id",
    )
    what.add_argument(
        "--self-written", type=int, metavar="N", help="N prompts that the target writes itself"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the shards")
    parser.add_argument("--source", help="label of these answers (the set's name, or self)")
    parser.add_argument("--licence", default="", help="licence of the prompts, for the record")
    parser.add_argument("--evaluation", action="store_true", help="these are for evaluation only")
    parser.add_argument(
        "--exclude",
        nargs="*",
        default=["gsm8k", "mbpp", "chat"],
        metavar="SET",
        help="evaluation sets whose prompts are left out (%(default)s)",
    )
    parser.add_argument("--data-dir", nargs="*", default=[], help="folders of named data sets")
    parser.add_argument("--hub", action="store_true", help="allow downloads from the hub")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first prompts")
    parser.add_argument("--limit", type=int, help="at most this many prompts")
    parser.add_argument("--url", default=DEFAULT_URL, help="(%(default)s)")
    parser.add_argument("--target", help="folder or hub id of the tokenizer (the server's model)")
    parser.add_argument("--max-new-tokens", type=int, default=256, help="(%(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 = greedy (%(default)s)")
    parser.add_argument("--top-p", type=float, default=1.0, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--concurrency", type=int, default=16, help="(%(default)s)")
    parser.add_argument("--pause-file", type=Path, help="wait while this file exists")
    add_key_arguments(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    try:
        return asyncio.run(_run(args))
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error


async def _run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from jetspec_sglang.client.server import connect
    from jetspec_sglang.evaluation.datasets import DATA_SETS, load_prompts
    from jetspec_sglang.training.answers import (
        Generator,
        Sampling,
        collect_answers,
        write_prompts,
    )
    from jetspec_sglang.training.prompts import ChatTemplate
    from jetspec_sglang.training.provenance import remember, target_hash

    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit}: must be 1 or more")
    server = connect(args.url, args)
    model = server.model_path()
    template = ChatTemplate.of_target(args.target or model)
    sampling = Sampling(args.max_new_tokens, args.temperature, args.top_p, args.seed)
    generator = Generator(args.url, server.headers, args.concurrency)
    held_out = _held_out(args)
    source = args.source or ("self" if args.self_written else Path(args.prompts).stem)
    args.out.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {"licence": args.licence, "evaluation": args.evaluation}
    if args.self_written:
        about |= {"licence": args.licence or "written by the target", "prompt_temperature": 1.0}
        file = args.out / f"{source}-prompts.jsonl"
        with tqdm(total=args.self_written, desc="prompts", unit="prompt") as bar:
            messages = await write_prompts(
                generator, template, file, args.self_written, held_out,
                seed=args.seed, progress=bar.update,
            )  # fmt: skip
    else:
        messages = load_prompts(args.prompts, args.data_dir, allow_hub=args.hub)
        if args.prompts in DATA_SETS:
            about["licence"] = args.licence or DATA_SETS[args.prompts].licence
        messages = messages[args.skip :][: args.limit]
        messages = [message for message in messages if message not in held_out]
    facts = {
        "target": model,
        "target_sha256": target_hash(model),
        "chat_template_sha256": hashlib.sha256(
            template.tokenizer.chat_template.encode()
        ).hexdigest(),
        "sampling": {
            "max_new_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
        },
    }
    about |= {"prompts": len(messages), "held_out_sha256": held_out.digest()}
    remember(args.out, facts, source, about)
    tokens = 0
    with tqdm(total=len(messages), desc=source, unit="answer") as bar:

        def progress(answers: int, new_tokens: int) -> None:
            nonlocal tokens
            tokens += new_tokens
            bar.set_postfix_str(f"{tokens} tokens")
            bar.update(answers)

        await collect_answers(
            generator, template, messages, source, args.out, sampling,
            pause_file=args.pause_file, progress=progress,
        )  # fmt: skip
    return 0


def _held_out(args: argparse.Namespace) -> "HeldOut":
    """Prompts of `--exclude`; a named set that is not on this machine is an error, not a gap."""
    from jetspec_sglang.evaluation.datasets import load_prompts
    from jetspec_sglang.training.prompts import HeldOut

    if args.evaluation:
        return HeldOut([])
    return HeldOut(
        message
        for name in args.exclude
        for message in load_prompts(name, args.data_dir, allow_hub=args.hub)
    )
