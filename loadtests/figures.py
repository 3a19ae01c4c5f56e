"""The figures of one run in words: a table for a terminal, and what a reader must know. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def _counts(summary: Mapping[str, Any]) -> str:
    return " / ".join(str(summary[key]) for key in ("completed", "failed", "aborted", "unfinished"))


def _pair(summary: Mapping[str, Any], one: str, two: str) -> str:
    return f"{number(summary[one])} / {number(summary[two])}"
