"""TTFT, TPOT, E2E and token counts of a stream whose chunks and times are known."""

from __future__ import annotations

import json

import pytest

from loadtests.records import Record
from loadtests.stream import StreamError, StreamReader


def line(text: str = "", total: int | None = None, finish: str | None = None) -> bytes:
    chunk: dict = {"choices": [{"delta": {"content": text}, "finish_reason": finish}]}
    if total is not None:
        chunk["usage"] = {"completion_tokens": total, "prompt_tokens": 9}
    return f"data: {json.dumps(chunk)}".encode()


def final(total: int) -> bytes:
    usage = {"completion_tokens": total, "prompt_tokens": 9}
    return f"data: {json.dumps({'choices': [], 'usage': usage})}".encode()


def read(*lines: tuple[float, bytes], due: float = 1.0) -> Record:
    record = Record(0, due, sent=due)
    reader = StreamReader(record, keep_text=True)
    for at, one in lines:
        reader.feed(one, at)
    reader.finish()
    reader.close()
    return record


def test_several_tokens_a_chunk_with_counts_in_every_chunk() -> None:
    record = read(
        (1.1, line("", 0)),
        (1.5, line("a", 1)),
        (1.7, line("b c d", 4)),
        (2.1, line("e f g h", 8)),
        (2.1, line(finish="length")),
        (2.2, final(8)),
        (2.2, b"data: [DONE]"),
    )
    assert record.status == "ok"
    assert record.text == "ab c de f g h"
    assert record.ttft == pytest.approx(0.5)
    assert record.e2e == pytest.approx(1.1)
    assert record.tpot == pytest.approx(0.6 / 7)
    assert record.progress == [(1.5, 1), (1.7, 4), (2.1, 8)]
    assert record.gaps == [(pytest.approx(0.2 / 3), 3), (pytest.approx(0.1), 4)]
    assert (record.prompt_tokens, record.completion_tokens, record.chunks) == (9, 8, 3)


def test_a_first_chunk_of_several_tokens_does_not_flatter_tpot() -> None:
    record = read((1.5, line("a b c d", 4)), (1.9, line("e f g h", 8, "stop")))
    assert record.tpot == pytest.approx(0.1)


def test_counts_in_the_last_chunk_alone() -> None:
    record = read(
        (1.5, line("a")),
        (1.7, line("b c d")),
        (2.1, line("e f g h")),
        (2.1, line(finish="stop")),
        (2.1, final(8)),
        (2.1, b"data: [DONE]"),
    )
    assert record.ttft == pytest.approx(0.5)
    assert record.tpot == pytest.approx(0.6 / 7)
    assert record.completion_tokens == 8
    assert record.progress[0][1] == 1
    assert record.progress[-1] == (2.1, 8)
    assert record.gaps == [], "tokens between chunks are not known"


def test_usage_beside_the_reason_for_the_end_is_no_count_of_the_first_chunk() -> None:
    record = read((1.5, line("a")), (1.6, line("b")), (1.7, line("c")), (1.7, line("", 3, "stop")))
    assert record.tpot == pytest.approx(0.1)
    assert record.gaps == [(pytest.approx(0.1), 1)] * 2, "as many chunks as tokens"


def test_a_server_that_never_counts_is_counted_by_chunks() -> None:
    record = read((1.5, line("a")), (1.6, line("b")), (1.7, line("c", finish="stop")))
    assert record.completion_tokens == 3
    assert record.tpot == pytest.approx(0.1)


def test_tokens_without_text_are_tokens() -> None:
    record = read((1.5, line("a", 1)), (1.6, line("", 3)), (1.7, line("b", 4, "length")))
    assert record.progress == [(1.5, 1), (1.6, 3), (1.7, 4)]
    assert record.tpot == pytest.approx(0.2 / 3)


def test_one_chunk_has_no_tpot() -> None:
    assert read((1.5, line("a b", 2, "stop"))).tpot is None


def test_plain_completions_and_speculation_figures() -> None:
    details = {"spec_verify_ct": 4, "spec_num_correct_drafts": 6}
    chunks: list[dict] = [
        {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}},
        {"choices": [{"text": "b", "finish_reason": "stop"}], "usage": {"completion_tokens": 11}},
        {"choices": [], "sglext": {"spec_tokens_details": [details]}},
    ]
    record = read(*((1.5 + i, f"data: {json.dumps(one)}".encode()) for i, one in enumerate(chunks)))
    assert (record.text, record.verify_rounds, record.accepted_drafts) == ("ab", 4, 6)


@pytest.mark.parametrize(
    ("lines", "kind", "said"),
    [
        ([line("a", 1)], "cut", "ended after 1 chunks"),
        (
            [line("a", 1), b'data: {"error": {"message": "out of memory"}}'],
            "stream",
            "out of memory",
        ),
        ([b"data: {"], "stream", "not JSON"),
        ([b"data: [1]"], "stream", "not a JSON object"),
        ([line("a", 1), line("", 1, "abort")], "aborted_by_server", "aborted"),
        ([b"data: [DONE]"], "empty", "no text"),
    ],
)
def test_what_is_no_whole_answer_is_a_failure(lines: list[bytes], kind: str, said: str) -> None:
    with pytest.raises(StreamError, match=said) as caught:
        read(*((1.0, one) for one in lines))
    assert caught.value.kind == kind
