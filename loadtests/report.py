"""The files of a run: `requests.jsonl`, `server.jsonl`, `summary.json`, `report.html`, `.png`.

`python -m loadtests.report DIR... --out DIR` puts finished runs together: a CSV with a row for each
run, and plots of speed and latency against the request rate. I/O: these files, git.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.records import Record
from loadtests.series import Sample

SUMMARY = "summary.json"


def write(
    folder: Path,
    summary: Mapping[str, Any],
    records: Sequence[Record],
    samples: Sequence[Sample],
) -> None:
    """Write every file of one run; `summary.json` last, so that its presence means all of them."""
    from loadtests.html import page
    from loadtests.plots import timeline

    folder.mkdir(parents=True, exist_ok=True)
    _lines(folder / "requests.jsonl", [one.as_dict() for one in records])
    _lines(folder / "server.jsonl", [one.as_dict() for one in samples])
    timeline(records, samples, summary, folder / "report.png")
    (folder / "report.html").write_text(page(summary, [folder / "report.png"]))
    partial = folder / f"{SUMMARY}.part"
    partial.write_text(json.dumps(_plain(summary), indent=1, allow_nan=False) + "\n")
    partial.rename(folder / SUMMARY)


def read_records(folder: Path) -> list[Record]:
    """The records of a finished run."""
    with (folder / "requests.jsonl").open(encoding="utf-8") as file:
        return [Record.from_dict(json.loads(line)) for line in file]


def text(summary: Mapping[str, Any]) -> str:
    """The figures for a terminal."""
    rows = [
        ("requests: answered / failed / cut off / unfinished", _counts(summary)),
        ("request rate: offered / answered (1/s)", _pair(summary, "offered_rate", "request_throughput")),
        ("tokens/s: in the window / to the end", _pair(summary, "window_output_throughput", "output_throughput")),
        ("TTFT ms: median / p99", _pair(summary, "median_ttft_ms", "p99_ttft_ms")),
        ("TPOT ms: median / p99", _pair(summary, "median_tpot_ms", "p99_tpot_ms")),
        ("E2E ms: median / p99", _pair(summary, "median_e2e_latency_ms", "p99_e2e_latency_ms")),
        ("tokens per request per round", number(summary["accept_length"])),
    ]  # fmt: skip
    if "slo_attainment" in summary:
        rows.append(("within the SLO / good requests per s", _pair(summary, "slo_attainment", "request_goodput")))  # fmt: skip
    if summary.get("p99_send_lag_ms") is not None:
        rows.append(("send delay ms: p99", number(summary["p99_send_lag_ms"])))
    rows.append(("CPU of the load generator (cores)", number(summary["load_generator_cpu_share"])))
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    return "\n".join([f"{summary['label']}", *lines, *notes(summary)])


def notes(summary: Mapping[str, Any]) -> list[str]:
    """Warnings that a reader must know before using the figures."""
    lines = []
    if summary["failures_by_kind"]:
        kinds = ", ".join(f"{kind} {n}" for kind, n in summary["failures_by_kind"].items())
        lines.append(f"FAILED REQUESTS: {summary['failed']} of {summary['requests']} ({kinds})")
    if summary["warmup_failed"]:
        lines.append(f"FAILED IN THE WARM-UP: {summary['warmup_failed']}")
    if summary["unfinished"]:
        lines.append(
            f"UNFINISHED: {summary['unfinished']} requests had no complete answer at the end"
        )
    if summary["over_saturated"]:
        lines.append(
            f"OVER-SATURATED: the backlog grew by {summary['unserved_share']:.0%} of the arrivals; "
            "latencies depend on how long the run was"
        )
    if summary["broken_trace_lines"]:
        lines.append(f"TRACE: {summary['broken_trace_lines']} broken lines were skipped")
    lines += [f"REJECTED: {reason}" for reason in summary["rejected_because"]]
    lines += [f"LIMIT NOT MET: {line}" for line in summary["broken_thresholds"]]
    return lines


def number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def git_commit() -> str | None:
    """The commit of the code that measures, None outside a repository."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10,
            cwd=Path(__file__).parent,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _lines(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(_plain(row)) + "\n" for row in rows))


def _plain(value: Any) -> Any:
    """JSON has no NaN: it becomes null. Times are cut to microseconds."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _counts(summary: Mapping[str, Any]) -> str:
    return " / ".join(str(summary[key]) for key in ("completed", "failed", "aborted", "unfinished"))


def _pair(summary: Mapping[str, Any], one: str, two: str) -> str:
    return f"{number(summary[one])} / {number(summary[two])}"


if __name__ == "__main__":
    from loadtests.sweep import main

    raise SystemExit(main())
