"""The load generator's command against a fake server: workers, failures, bad input, exit statuses."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import load_generator
from tests.support.fake_openai import Answer, FakeOpenAI
from tests.support.load_generator import LOCUST, LOCUSTFILE

LATE = ("--max-lag-ms", "2000")
"""These tests share the machine; how late a request is sent is not what they are about."""
SHORT = ("--rate", "4", "--seconds", "3", "--warmup", "1", "--seed", "3", *LATE)


def test_help_lists_our_options_in_their_own_group() -> None:
    shown = subprocess.run(
        [str(LOCUST), "-f", str(LOCUSTFILE), "--help"], capture_output=True, text=True, check=True
    ).stdout
    ours = shown[shown.index("Load test options:") :]
    for option in ("--arrivals", "--rate", "--trace", "--slowdown-factor", "--slo", "--threshold"):
        assert option in ours
        assert option not in shown[: shown.index("Load test options:")]


@pytest.mark.full
def test_two_workers_send_what_one_process_sends(tmp_path: Path) -> None:
    with FakeOpenAI(Answer(first_s=0.05, gap_s=0.02, chunks=(1, 3, 3))) as server:
        alone = load_generator.run(server.url, tmp_path / "alone", *SHORT)
        two = load_generator.run(server.url, tmp_path / "two", "--processes", "2", *SHORT)
    assert (alone.status, two.status) == (0, 0), alone.output + two.output
    assert [one["due"] for one in two.requests] == [one["due"] for one in alone.requests]
    assert {one["status"] for one in two.requests} == {"ok"}
    assert two.summary["scheduled"] == len(two.requests)
    assert two.summary["total_output_tokens"] == 7 * two.summary["completed"]


@pytest.mark.full
def test_a_closed_loop_over_workers(tmp_path: Path) -> None:
    options = ("--arrivals", "closed", "--users", "3", "--seconds", "3", "--warmup", "1", *LATE)
    with FakeOpenAI(Answer(first_s=0.2, gap_s=0.1)) as server:
        ended = load_generator.run(server.url, tmp_path / "run", "--processes", "2", *options)
    assert ended.status == 0, ended.output
    assert ended.summary["max_concurrency"] == 3
    starts = [(one["sent"], 1) for one in ended.requests]
    ends = [(one["end"], -1) for one in ended.requests]
    running = peak = 0
    for _, change in sorted([*starts, *ends]):
        running += change
        peak = max(peak, running)
    assert peak == 3


def test_failures_of_two_workers_are_counted_and_set_the_exit_status(tmp_path: Path) -> None:
    options = (*SHORT, "--processes", "2", "--slo", "ttft:5000")
    with FakeOpenAI(Answer(status=500, fail_every=2)) as server:
        ended = load_generator.run(server.url, tmp_path / "run", *options)
        sent = len(server.seen)
    summary = ended.summary
    assert ended.status == 1
    assert len(ended.requests) == sent == summary["requests"] + summary["warmup_requests"]
    assert summary["failed"] + summary["completed"] == summary["requests"]
    assert summary["failures_by_kind"] == {"http": summary["failed"]}
    assert summary["slo_attainment"] == pytest.approx(1 - summary["failure_rate"])
    assert "500: told to fail" in next(one["error"] for one in ended.requests if one["error"])
    assert "FAILED REQUESTS" in ended.output
    assert "FAILED REQUESTS" in (ended.folder / "report.html").read_text()


@pytest.mark.full
def test_a_server_that_stalls_and_limits(tmp_path: Path) -> None:
    limits = ("--threshold", "failure_rate<=0.9,completed>=1,p99_ttft_ms<=0.001")
    with FakeOpenAI(Answer(fail_after=2, failure="stall", fail_every=3)) as server:
        ended = load_generator.run(
            server.url, tmp_path / "run", *SHORT, "--stall-timeout", "0.5", *limits
        )
    stalled = [one for one in ended.requests if one["status"] == "failed"]
    assert ended.status == 1
    assert len(stalled) == len(ended.requests) // 3
    assert all(one["error_kind"] == "stalled" for one in stalled)
    assert all(one["completion_tokens"] == 2 for one in stalled), "what came is kept"
    assert [one.split(":")[0] for one in ended.summary["broken_thresholds"]] == [
        "p99_ttft_ms<=0.001"
    ]
    assert "LIMIT NOT MET: p99_ttft_ms<=0.001" in ended.output


@pytest.mark.full
def test_a_server_that_dies_is_a_report_of_failures(tmp_path: Path) -> None:
    with FakeOpenAI() as server:
        process = load_generator.start(server.url, tmp_path / "run", *SHORT)
        while not server.seen:
            time.sleep(0.05)
    ended = load_generator.ended(process, tmp_path / "run")
    assert ended.status in (1, 3)
    assert ended.summary["failed"] + ended.summary["warmup_failed"] > 0
    assert len(ended.requests) == ended.summary["scheduled"]


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM]
)
def test_an_interrupted_run_reports_what_it_has_and_is_rejected(
    number: signal.Signals, tmp_path: Path
) -> None:
    options = ("--rate", "10", "--seconds", "60", "--warmup", "0", *LATE)
    with FakeOpenAI(Answer(first_s=0.05, gap_s=0.3, chunks=(1, 1, 1, 1))) as server:
        process = load_generator.start(server.url, tmp_path / "run", *options)
        while len(server.seen) < 20:
            time.sleep(0.05)
        process.send_signal(number)
        ended = load_generator.ended(process, tmp_path / "run")
    assert ended.status == 3
    assert not ended.summary["valid"]
    assert "interrupted after" in ended.summary["rejected_because"][0]
    assert "unfinished" in {one["status"] for one in ended.requests}
    assert "UNFINISHED: " in ended.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "0"), "--rate 0: "),
        pytest.param(("--rate", "nan"), "--rate nan: ", marks=pytest.mark.full),
        (("--model", "nothing"), "--model nothing: http://127.0.0.1"),
        (("--arrivals", "trace", "--trace", "bad.csv"), "1 broken lines: line 2: "),
        pytest.param(
            ("--prompts", "nowhere.jsonl"), "--prompts nowhere.jsonl: ", marks=pytest.mark.full
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_sent(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nnow,1,1\n")
    with FakeOpenAI() as server:
        ended = load_generator.run(server.url, tmp_path / "run", *options)
        assert not server.seen
    assert ended.status == 2
    lines = [line for line in ended.output.splitlines() if line.startswith("loadtests: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in ended.output
    assert not ended.folder.exists()


def test_no_server_and_no_url(tmp_path: Path) -> None:
    with FakeOpenAI() as server:
        pass
    for url, said in ((server.url, "no server answers at"), ("127.0.0.1", "must be a URL")):
        ended = load_generator.run(url, tmp_path / "run")
        assert ended.status == 2
        assert said in ended.output
