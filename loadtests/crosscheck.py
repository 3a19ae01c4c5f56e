"""The same closed loop by three load generators: ours, `sglang.bench_serving`, guidellm.

    python -m loadtests.crosscheck --host http://127.0.0.1:30000 --tokenizer MODEL --out runs/check

Each sends the same prompts with the same number of clients; they run one after the other, and the
prefix cache is emptied before each. guidellm has its own environment (`--guidellm PATH`). I/O:
processes, HTTP, the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.config import ConfigError, load_config
from loadtests.figures import number
from loadtests.preflight import look
from loadtests.prompts import Prompts

Figures = Mapping[str, float | None]

OURS, BENCH_SERVING, GUIDELLM = "loadtests", "sglang.bench_serving", "guidellm"
CPU = "client_cpu_seconds"
KEYS = {
    "output_throughput": "tokens/s",
    "request_throughput": "requests/s",
    "mean_ttft_ms": "TTFT mean ms",
    "median_ttft_ms": "TTFT median ms",
    "mean_tpot_ms": "TPOT mean ms",
    "median_tpot_ms": "TPOT median ms",
    "mean_e2e_latency_ms": "E2E mean ms",
    CPU: "CPU of the client, s",
}
_GUIDELLM = {
    "mean_ttft_ms": ("time_to_first_token_ms", "mean", 1.0),
    "median_ttft_ms": ("time_to_first_token_ms", "median", 1.0),
    # Its time per output token counts the first token's wait too; its ITL is our TPOT.
    "mean_tpot_ms": ("inter_token_latency_ms", "mean", 1.0),
    "median_tpot_ms": ("inter_token_latency_ms", "median", 1.0),
    "mean_e2e_latency_ms": ("request_latency", "mean", 1000.0),
}


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        config = load_config({"prompts": args.prompts, "unique_prompts": True})
        facts = look(config, args.host)
        prompts = [Prompts(config).text(i) for i in range(args.requests)]
    except ConfigError as error:
        print(f"crosscheck: {error}", file=sys.stderr)
        return 2
    _write_prompts(prompts, args)
    tools: dict[str, Callable[[Path], Figures]] = {
        OURS: lambda file: _ours(args, file),
        BENCH_SERVING: lambda file: _bench_serving(args, facts.model, file),
    }
    if args.guidellm:
        tools[GUIDELLM] = lambda file: _guidellm(args, facts.model, file)
    found: dict[str, list[Figures]] = {name: [] for name in tools}
    for repeat in range(args.repeats):
        for name, tool in tools.items():
            _flush(args.host)
            before = _children_cpu()
            figures = tool(args.out / f"{name}-{repeat}")
            found[name].append({**figures, CPU: _children_cpu() - before})
            print(f"{name}, repeat {repeat}: {number(found[name][-1]['output_throughput'])} tok/s")
    text = table(found)
    (args.out / "crosscheck.json").write_text(json.dumps(found, indent=1) + "\n")
    print(text)
    return 0


def table(found: Mapping[str, Sequence[Figures]]) -> str:
    """Medians of the repeats with their spread, and the others over ours."""
    lines = [f"| figure | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for key, name in KEYS.items():
        cells = []
        mine = _median(found[OURS], key)
        for tool, repeats in found.items():
            values = [value for one in repeats if (value := one[key]) is not None]
            middle = _median(repeats, key)
            if middle is None:
                cells.append("-")
                continue
            spread = f"{number(middle)} ({number(min(values))}-{number(max(values))})"
            cells.append(spread if tool == OURS or not mine else f"{spread} {middle / mine:.3f}x")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ours(args: argparse.Namespace, folder: Path) -> Figures:
    command = [
        *(sys.executable, "-m", "loadtests", "--headless", "--only-summary", "--host", args.host),
        *("--arrivals", "closed", "--users", str(args.users), "--requests", str(args.requests)),
        *("--seconds", "3600", "--warmup", "0", "--max-tokens", str(args.max_tokens)),
        *("--prompts", args.prompts, "--unique-prompts", "--metrics-interval", "0"),
        *("--report-dir", str(folder)),
    ]
    _run(command, folder)
    return _chosen(json.loads((folder / "summary.json").read_text()))


def _bench_serving(args: argparse.Namespace, model: str, folder: Path) -> Figures:
    file = folder.with_name(f"{folder.name}.jsonl")
    file.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat"),
        *("--base-url", args.host, "--model", args.tokenizer, "--served-model-name", model),
        *("--dataset-name", "openai", "--dataset-path", str(args.out / "openai.jsonl")),
        *("--num-prompts", str(args.requests), "--max-concurrency", str(args.users)),
        *("--sharegpt-output-len", str(args.max_tokens), "--output-file", str(file)),
        *("--warmup-requests", "0", "--disable-tqdm"),
    ]
    _run(command, folder)
    return _chosen(json.loads(file.read_text().splitlines()[-1]))


def _guidellm(args: argparse.Namespace, model: str, folder: Path) -> Figures:
    file = folder.with_name(f"{folder.name}.json")
    backend = {
        "kind": "openai_http", "target": args.host, "model": model, "validate_backend": False,
        "max_tokens": args.max_tokens, "extras": {"body": {"ignore_eos": True, "temperature": 0}},
    }  # fmt: skip
    command = [
        *(args.guidellm, "run", "--backend", json.dumps(backend)),
        *("--profile", f"kind=concurrent,streams={args.users}"),
        *("--constraint", f"kind=max_requests,count={args.requests}"),
        *("--data", f"kind=json_file,path={args.out / 'prompts.jsonl'}"),
        *("--tokenizer", f"kind=huggingface_auto,model={args.tokenizer}"),
        *("--output", f"kind=json,path={file}", "--disable-progress"),
    ]
    _run(command, folder)
    benchmark = json.loads(file.read_text())["benchmarks"][0]
    return from_guidellm(benchmark, args.max_tokens)


def from_guidellm(benchmark: Mapping[str, Any], max_tokens: int) -> Figures:
    """Its figures under our names; speeds over the whole run, as the others count them."""
    metrics = benchmark["metrics"]
    found: dict[str, float | None] = {
        key: metrics[name]["successful"][statistic] * factor
        for key, (name, statistic, factor) in _GUIDELLM.items()
    }
    rate = metrics["request_totals"]["successful"] / benchmark["duration"]
    return {**found, "request_throughput": rate, "output_throughput": rate * max_tokens}


def _children_cpu() -> float:
    """CPU seconds of the programs that have ended; their imports are in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _write_prompts(prompts: Sequence[str], args: argparse.Namespace) -> None:
    messages = [
        {"messages": [{"role": "user", "content": one}], "max_tokens": args.max_tokens}
        for one in prompts
    ]
    _lines(args.out / "openai.jsonl", messages)
    _lines(args.out / "prompts.jsonl", [{"prompt": one} for one in prompts])


def _lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _run(command: Sequence[str], folder: Path) -> None:
    log = folder.with_name(f"{folder.name}.log")
    with log.open("w") as out:
        status = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        ).returncode
    if status:
        raise SystemExit(f"crosscheck: {command[0]} ended with {status}, see {log}")


def _flush(host: str) -> None:
    """Empty SGLang's prefix cache; other servers have no such call."""
    try:
        urllib.request.urlopen(
            urllib.request.Request(f"{host}/flush_cache?timeout=30", method="POST"), timeout=40
        ).close()
    except OSError:
        return


def _chosen(result: Mapping[str, Any]) -> Figures:
    return {key: result.get(key) for key in KEYS}


def _median(repeats: Sequence[Figures], key: str) -> float | None:
    values = [value for one in repeats if (value := one[key]) is not None]
    return statistics.median(values) if values else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.crosscheck",
        description="Compare this load generator with sglang.bench_serving and guidellm.",
    )
    parser.add_argument("--host", required=True, metavar="URL", help="a running SGLang server")
    parser.add_argument("--tokenizer", required=True, help="folder or hub id of its model")
    parser.add_argument(
        "--guidellm",
        metavar="PROGRAM",
        help="path of guidellm; if it is not given, guidellm is left out",
    )
    parser.add_argument("--prompts", default="chat", help="a JSONL file or a set (%(default)s)")
    parser.add_argument("--users", type=int, default=4, help="clients (%(default)s)")
    parser.add_argument("--requests", type=int, default=24, help="of each run (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=64, help="of an answer (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
