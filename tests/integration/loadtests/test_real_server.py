"""A short real load on the shared JETSPEC server, and what its report says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtests.report import main as put_together
from tests.support import load_generator, prompts
from tests.support.server import Server

pytestmark = pytest.mark.integration

TOKENS = 16
BUDGET = 8


def test_a_real_load_and_its_report(
    jetspec: Server, budget: Callable[[int], None], tmp_path: Path
) -> None:
    asked = tmp_path / "prompts.jsonl"
    asked.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in prompts.texts(4)))
    jetspec.flush()
    budget(BUDGET)
    ended = load_generator.run(
        jetspec.url,
        tmp_path / "run",
        *("--rate", "1.5", "--seconds", "8", "--warmup", "2", "--seed", "5", "--label", "B=8"),
        *("--prompts", str(asked), "--max-tokens", str(TOKENS)),
        *("--slo", "ttft:60000,tpot:60000", "--metrics-interval", "1"),
        *("--max-lag-ms", "5000", "--threshold", "failure_rate<=0,p99_ttft_ms<=600000"),
        seconds=600,
    )
    assert ended.status == 0, ended.output
    summary = ended.summary
    assert (summary["failed"], summary["warmup_failed"], summary["valid"]) == (0, 0, True)
    assert summary["completed"] == summary["requests"] >= 3
    assert summary["total_output_tokens"] == TOKENS * summary["completed"]
    assert summary["accept_length"] > 1.2, "the head of this server drafts recorded answers"
    assert summary["slo_attainment"] == 1.0
    assert summary["server_info"]["jetspec"]["budget"] == BUDGET
    for row in ended.requests:
        assert row["counted"], "SGLang counts tokens in every chunk"
        assert row["completion_tokens"] == row["progress"][-1][1] == TOKENS
        assert row["chunks"] < TOKENS, "several tokens a chunk"
        assert 0 < row["ttft_ms"] < row["e2e_ms"]
        tpot = (row["e2e_ms"] - row["ttft_ms"]) / (TOKENS - row["progress"][0][1])
        assert row["tpot_ms"] == pytest.approx(tpot, rel=0.01)
    assert {one["budget"] for one in ended.samples} >= {BUDGET}
    assert ended.requests[-1]["budget_end"] == BUDGET
    for name in ("report.png", "report.html"):
        assert (ended.folder / name).stat().st_size > 10_000
    assert put_together([str(ended.folder), "--out", str(tmp_path / "sweep")]) == 0
    header, row = (tmp_path / "sweep" / "rates.csv").read_text().splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["label"] == "B=8"
    assert (tmp_path / "sweep" / "sweep.png").stat().st_size > 10_000
