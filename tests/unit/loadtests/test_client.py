"""The client against a server with known delays and chunking, and one that fails in every way."""

from __future__ import annotations

import time

import pytest

from loadtests.client import Endpoint, ask, clock_from
from loadtests.records import Record
from tests.support.fake_openai import MODEL, Answer, FakeOpenAI
from tests.unit.loadtests.build import config

EPSILON_S = 0.002
GAP_S = 0.15
"""A busy machine is late by less."""


def request(server: FakeOpenAI, cut_after: float | None = None, **options: object) -> Record:
    chosen = config(keep_text=True, stall_timeout=0.4, request_timeout=1.2, **options)
    endpoint = Endpoint.of(chosen, server.url, MODEL, "", sglang=False)
    record = Record(0, 0.0, max_tokens=16)
    ask(endpoint, chosen, record, "Hello", clock_from(time.time()), cut_after)
    return record


@pytest.mark.parametrize(("usage", "api"), [("continuous", "chat"), ("final", "completions")])
def test_known_delays_and_chunks(usage: str, api: str) -> None:
    answer = Answer(first_s=GAP_S, gap_s=GAP_S, chunks=(1, 4, 3), usage=usage)
    with FakeOpenAI(answer) as server:
        start = time.time()
        record = request(server, api=api)
        sent, times = server.seen[0][1], [one - start for one in server.sent]
    assert record.ok, record.error
    for (seen, _), this, following in zip(record.progress, times, [*times[1:], 9], strict=True):
        assert this - EPSILON_S <= seen < following, "seen after it was sent, before the next was"
    assert record.ttft == pytest.approx(times[0], abs=GAP_S / 2)
    assert record.e2e == pytest.approx(times[2], abs=GAP_S / 2)
    assert record.tpot == pytest.approx((times[2] - times[0]) / 7, abs=GAP_S / 14)
    assert (record.completion_tokens, record.chunks, record.prompt_tokens) == (8, 3, 7)
    assert record.text == "word " * 8
    assert record.progress[-1][1] == 8
    assert sent["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (sent["max_tokens"], sent["ignore_eos"], sent["temperature"]) == (16, True, 0.0)
    asked = sent["messages"][0]["content"] if api == "chat" else sent["prompt"]
    assert asked == "Hello"


@pytest.mark.parametrize(
    ("answer", "kind", "said", "tokens"),
    [
        (Answer(status=503), "http", "503: told to fail", 0),
        (Answer(fail_after=1, failure="error"), "stream", "told to fail", 1),
        (Answer(fail_after=2, failure="stall"), "stalled", "no data for 0.4 s", 2),
        (Answer(fail_after=1, failure="cut"), "cut", "", 1),
        (Answer(fail_after=1, failure="stop"), "cut", "ended after 1 chunks", 1),
        (Answer(fail_after=1, failure="abort"), "aborted_by_server", "aborted", 1),
        (Answer(chunks=()), "empty", "no text", 0),
        (Answer(first_s=2.0), "timeout", "not finished after 1.2 s", 0),
        (Answer(first_s=0.8, chunks=()), "empty", "no text", 0),
        (Answer(gap_s=0.2, chunks=(1,) * 20), "timeout", "not finished after 1.2 s", 6),
    ],
)
def test_failures(answer: Answer, kind: str, said: str, tokens: int) -> None:
    with FakeOpenAI(answer) as server:
        record = request(server)
    assert (record.status, record.error_kind) == ("failed", kind), record.error
    assert said in record.error
    assert record.completion_tokens == pytest.approx(tokens, abs=1 if tokens > 2 else 0)


def test_nothing_listens() -> None:
    with FakeOpenAI() as server:
        pass
    record = request(server)
    assert (record.status, record.error_kind) == ("failed", "connect")


def test_cut_off_on_purpose_is_no_failure() -> None:
    with FakeOpenAI(Answer(gap_s=0.2, chunks=(1, 2, 3, 4, 5))) as server:
        record = request(server, cut_after=0.5)
    assert record.status == "aborted"
    assert "word " * 15 > record.text > ""
    assert 0.5 - EPSILON_S <= record.end < 0.8


def test_a_path_before_v1_and_a_key() -> None:
    endpoint = Endpoint.of(config(), "https://host:1/openai/v1/", "m", "secret", sglang=True)
    assert (endpoint.url, endpoint.path) == ("https://host:1", "/openai/v1/chat/completions")
    assert endpoint.headers["Authorization"] == "Bearer secret"
    assert "secret" not in repr(endpoint)
    assert endpoint.body["return_spec_tokens_details"] is True


def test_natural_lengths_and_an_extra_body() -> None:
    chosen = config(lengths="natural", extra_body='{"top_p": 0.5, "temperature": 1}')
    body = Endpoint.of(chosen, "http://h:1", "m", "", sglang=False).body
    assert "ignore_eos" not in body
    assert (body["top_p"], body["temperature"]) == (0.5, 1)
