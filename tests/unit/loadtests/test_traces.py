"""Traces of every schema, whole and with broken lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.traces import TraceError, read_trace

SAMPLES = Path(__file__).parents[3] / "loadtests" / "traces"

BROKEN = {
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,48,10\n"
        "yesterday,3,8\n"
        "2023-11-16 18:17:04.0781490,-1,27\n"
        "2023-11-16 18:17:05.4799600,7\n"
    ),
    "burstgpt": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,1,2.0,ChatGPT,472,18,490,Conversation log\n"
        "nan,1,2.0,ChatGPT,10,20,30,API log\n"
        "8,1,2.0,ChatGPT,ten,20,30,API log\n"
        "9,1,2.0,ChatGPT,10,2.5,30,API log\n"
    ),
    "mooncake": (
        '{"timestamp": 3000, "input_length": 6955, "output_length": 52, "hash_ids": [1, 2]}\n'
        '{"timestamp": 3000, "input_length": 6955\n'
        '{"timestamp": 4000, "output_length": 52}\n'
        "[1, 2, 3]\n"
    ),
}
FIRST = {"azure": (48, 10), "burstgpt": (472, 18), "mooncake": (6955, 52)}


@pytest.mark.parametrize(
    ("name", "schema"),
    [("azure.csv", "azure"), ("burstgpt.csv", "burstgpt"), ("mooncake.jsonl", "mooncake")],
)
def test_the_samples(name: str, schema: str) -> None:
    trace = read_trace(SAMPLES / name)
    assert (trace.schema, trace.broken_lines) == (schema, 0)
    assert len(trace.requests) >= 20
    at = [one.at for one in trace.requests]
    assert at == sorted(at)
    assert all(one.prompt_tokens > 0 for one in trace.requests)


@pytest.mark.parametrize("schema", BROKEN)
def test_broken_lines_are_an_error_or_counted(schema: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(BROKEN[schema])
    second = 2 if schema == "mooncake" else 3
    with pytest.raises(TraceError, match=rf"trace: 3 broken lines: line {second}: .*skips them"):
        read_trace(file)
    trace = read_trace(file, skip_broken=True)
    assert (len(trace.requests), trace.broken_lines) == (1, 3)
    only = trace.requests[0]
    assert (only.prompt_tokens, only.output_tokens) == FIRST[schema]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a known trace"),
        ("a,b,c\n1,2,3\n", "not a known trace"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request"),
        ("\x00\xff\n", "not a known trace"),
    ],
)
def test_what_is_no_trace(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(TraceError, match=said):
        read_trace(file)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(TraceError, match="--trace /nowhere: No such file"):
        read_trace(Path("/nowhere"))


def test_seven_digits_of_a_second(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:04.0000000,1,1\n2023-11-16 18:17:03.9799600,2,2\n"
    )
    first, second = read_trace(file).requests
    assert first.prompt_tokens == 2, "sorted by time"
    assert second.at - first.at == pytest.approx(0.02004, abs=1e-6)
