"""The figures of a run, under the key names of `sglang.bench_serving`. Pure.

The warm-up is left out. `duration` runs from the end of the warm-up to the end of the last
measured request, so `output_throughput` means what it means there. `window_output_throughput`
counts the tokens that came between the end of the warm-up and the last arrival, of whatever
request: below saturation it has no idle end in it, above saturation it is the server's capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from loadtests.config import LoadConfig
from loadtests.records import Record
from loadtests.saturation import saturation
from loadtests.slo import goodput

PERCENTILES = (90, 95, 99)


def summarise(config: LoadConfig, records: Sequence[Record], window_end: float) -> dict[str, Any]:
    """Figures of the records that are not warm-up; `window_end` is the end of the arrivals."""
    measured = [one for one in records if not one.warmup]
    answered = [one for one in measured if one.ok]
    failed = [one for one in measured if one.status == "failed"]
    start = config.warmup
    last = max((one.end for one in measured), default=start)
    seconds = max(last - start, 1e-9)
    window = max(min(window_end, last) - start, 1e-9)
    tokens = sum(one.completion_tokens for one in answered)
    prompts = sum(one.prompt_tokens for one in answered)
    asked = len(measured) - sum(one.status == "aborted" for one in measured)
    found: dict[str, Any] = {
        "duration": seconds,
        "window": window,
        "requests": len(measured),
        "completed": len(answered),
        "failed": len(failed),
        "unfinished": sum(one.status == "unfinished" for one in measured),
        "aborted": sum(one.status == "aborted" for one in measured),
        "failure_rate": len(failed) / asked if asked else 0.0,
        "failures_by_kind": dict(Counter(one.error_kind for one in failed)),
        "warmup_requests": len(records) - len(measured),
        "warmup_failed": sum(one.warmup and one.status == "failed" for one in records),
        "total_input_tokens": prompts,
        "total_output_tokens": tokens,
        "request_throughput": len(answered) / seconds,
        "offered_rate": sum(one.due <= window_end for one in measured) / window,
        "input_throughput": prompts / seconds,
        "output_throughput": tokens / seconds,
        "total_throughput": (prompts + tokens) / seconds,
        "window_output_throughput": tokens_between(records, start, start + window) / window,
        "concurrency": sum(one.e2e for one in answered) / seconds,
        "accept_length": accept_length(answered),
        "cached_share": sum(one.cached_tokens for one in answered) / prompts if prompts else 0.0,
    }
    found |= distribution("ttft", [one.ttft for one in answered])
    found |= distribution("tpot", [one.tpot for one in answered])
    found |= distribution("itl", _gaps(answered))
    found |= distribution("e2e_latency", [one.e2e for one in answered])
    if config.open_loop:
        lags = [max(0.0, one.lag) for one in measured if one.error_kind != "lost"]
        found |= distribution("send_lag", lags)
        judged = saturation(records, start, start + window)
        found["over_saturated"] = judged.over
        found["unserved_share"] = judged.unserved_share
    else:
        found["over_saturated"] = False
    if config.slos_ms:
        found |= goodput(measured, config.slos_ms, seconds)
    return found


def distribution(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """mean, median, std and percentiles in ms; None where there is no value."""
    known = np.asarray([one for one in values if one is not None], dtype=float) * 1000
    keys = ("mean", "median", "std", *(f"p{one}" for one in PERCENTILES))
    if not len(known):
        return {f"{key}_{name}_ms": None for key in keys}
    numbers = (known.mean(), np.median(known), known.std(), *np.percentile(known, PERCENTILES))
    return {f"{key}_{name}_ms": float(one) for key, one in zip(keys, numbers, strict=True)}


def tokens_between(records: Sequence[Record], start: float, end: float) -> int:
    """Tokens that came in [start, end], of every request."""
    total = 0
    for record in records:
        before = 0
        for at, count in record.progress:
            if start <= at <= end:
                total += count - before
            before = count
    return total


def accept_length(records: Sequence[Record]) -> float | None:
    """Tokens per request per round, bonus included; None where the server does not say."""
    rounds = sum(one.verify_rounds for one in records)
    return 1.0 + sum(one.accepted_drafts for one in records) / rounds if rounds else None


def verdict(
    config: LoadConfig,
    summary: dict[str, Any],
    *,
    lost: int,
    interrupted_at: float | None = None,
) -> list[str]:
    """Reasons why these figures must not be used; empty for a valid run."""
    reasons = []
    if interrupted_at is not None:
        reasons.append(f"the run was interrupted after {interrupted_at:.0f} s")
    lag = summary.get("p99_send_lag_ms")
    if lag is not None and lag > config.max_lag_ms:
        reasons.append(
            f"requests were sent late: p99 {lag:.1f} ms, limit {config.max_lag_ms:g} ms; "
            "the load generator had too little CPU"
        )
    if lost:
        reasons.append(f"{lost} requests were due and never reported: a worker ended")
    left = summary["unfinished"]
    if left and not summary["over_saturated"]:
        reasons.append(
            f"{left} requests had no answer {config.drain_timeout:g} s after the last arrival, and "
            "the server was not over-saturated"
        )
    if not summary["completed"]:
        reasons.append("no request was answered")
    return reasons


def _gaps(records: Sequence[Record]) -> list[float]:
    return [gap for one in records for gap, tokens in one.gaps for _ in range(tokens)]
