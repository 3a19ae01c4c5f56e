"""Latency objectives and goodput, as `sglang.bench_serving` defines them. Pure.

A request is good when it was answered and meets every objective. Failed requests are in the
denominator; requests that this client cut off on purpose are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.records import Record


def goodput(
    records: Sequence[Record], slos_ms: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """`request_goodput`, `slo_attainment` and `slo_attainment_by_metric`."""
    asked = [one for one in records if one.status != "aborted"]
    met = dict.fromkeys(slos_ms, 0)
    good = 0
    for record in asked:
        if not record.ok:
            continue
        values = {
            "ttft": 1000 * (record.ttft or 0.0),
            "tpot": 1000 * (record.tpot or 0.0),
            "e2el": 1000 * record.e2e,
        }
        kept = [name for name, limit in slos_ms.items() if values[name] <= limit]
        for name in kept:
            met[name] += 1
        good += len(kept) == len(slos_ms)
    count = max(1, len(asked))
    return {
        "goodput_slos_ms": dict(slos_ms),
        "request_goodput": good / seconds if seconds else 0.0,
        "slo_attainment": good / count,
        "slo_attainment_by_metric": {name: number / count for name, number in met.items()},
    }
