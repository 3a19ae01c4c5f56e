"""What SGLang's API promises still holds under JETSPEC, most of it token for token."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.integration.cases import differing, greedy, ids
from tests.support.prompts import chat_ids, texts
from tests.support.reference import Reference
from tests.support.server import Server

pytestmark = pytest.mark.integration
SetBudget = Callable[[int], None]


@pytest.fixture(autouse=True)
def _budget(budget: SetBudget) -> None:
    budget(16)


def prompt(index: int) -> list[int]:
    return chat_ids(texts(index + 1)[index])


def chat(index: int, **options: Any) -> dict[str, Any]:
    return {
        "model": "default",
        "messages": [{"role": "user", "content": texts(index + 1)[index]}],
        "temperature": 0,
        **options,
    }


def events(server: Server, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A stream's events as they arrive."""
    with server.client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line[6:])


# -- output ------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_max_tokens_is_exact(tokens: int, jetspec: Server, reference: Reference) -> None:
    request = greedy(prompt(0), tokens, ignore_eos=True)
    [plain] = reference.answers([request])
    answer = jetspec.generate(request)
    assert answer["output_ids"] == plain["output_ids"]
    assert len(answer["output_ids"]) == answer["meta_info"]["completion_tokens"] == tokens
    assert answer["meta_info"]["finish_reason"]["type"] == "length"


def test_streamed_chat_equals_the_whole(jetspec: Server, reference: Reference) -> None:
    [plain] = reference.answers([greedy(prompt(1), 40)])
    pieces, reasons, usage = [], [], None
    body = chat(1, max_tokens=40, stream_options={"include_usage": True})
    for event in events(jetspec, "/v1/chat/completions", body):
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            pieces.append(choice["delta"].get("content") or "")
            reasons.append(choice["finish_reason"])
    assert "".join(pieces) == plain["text"]
    assert [reason for reason in reasons if reason] == [plain["meta_info"]["finish_reason"]["type"]]
    assert sum(bool(piece) for piece in pieces) > 3, "it arrived in one piece"
    assert usage["completion_tokens"] == len(plain["output_ids"])


def test_stop_string(jetspec: Server, reference: Reference) -> None:
    [free] = reference.answers([greedy(prompt(2), 40)])
    word = free["text"].split()[6]
    request = greedy(prompt(2), 40, stop=[word])
    [plain] = reference.answers([request])
    answer = jetspec.generate(request)
    assert answer["text"] == plain["text"]
    assert word not in answer["text"]
    assert answer["meta_info"]["finish_reason"] == plain["meta_info"]["finish_reason"]


def test_stop_token(jetspec: Server, reference: Reference) -> None:
    [free] = reference.answers([greedy(prompt(2), 40)])
    request = greedy(prompt(2), 40, stop_token_ids=[free["output_ids"][9]])
    [plain] = reference.answers([request])
    answer = jetspec.generate(request)
    assert answer["output_ids"] == plain["output_ids"]
    assert len(plain["output_ids"]) <= 10
    assert answer["meta_info"]["finish_reason"] == plain["meta_info"]["finish_reason"]


def test_several_choices(jetspec: Server) -> None:
    body = chat(3, max_tokens=12, n=3, temperature=1.0)
    choices = jetspec.post("/v1/chat/completions", body)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in choices}) > 1


def test_logprobs(jetspec: Server, reference: Reference) -> None:
    request = {
        **greedy(prompt(4), 24),
        "return_logprob": True,
        "top_logprobs_num": 3,
        "logprob_start_len": 0,
    }
    [plain] = reference.answers([request])
    answer = jetspec.generate(request)
    assert answer["output_ids"] == plain["output_ids"]
    for name in ("input_token_logprobs", "output_token_logprobs"):
        for ours, theirs in zip(answer["meta_info"][name], plain["meta_info"][name], strict=True):
            assert ours[1] == theirs[1]
            if theirs[0] is not None:
                assert ours[0] == pytest.approx(theirs[0], abs=1e-4)
    tops = zip(
        answer["meta_info"]["output_top_logprobs"],
        plain["meta_info"]["output_top_logprobs"],
        strict=True,
    )
    for ours, theirs in tops:
        assert [entry[1] for entry in ours] == [entry[1] for entry in theirs]
        assert [e[0] for e in ours] == pytest.approx([e[0] for e in theirs], abs=1e-4)


# -- per-node adjustments ------------------------------------------------------------------


PENALTIES = {
    "frequency": {"frequency_penalty": 0.8},
    "presence": {"presence_penalty": 1.1},
    "repetition": {"repetition_penalty": 1.3},
    "all": {"frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_penalty": 1.1},
    "min_new_tokens": {"min_new_tokens": 30},
    "logit_bias": {"logit_bias": {"198": -8.0, "29": 2.5, "314": 3.0}},
    "bias_and_penalty": {"logit_bias": {"198": -8.0, "29": 2.5}, "frequency_penalty": 0.8},
}


def test_penalties_and_bias_equal_plain(jetspec: Server, reference: Reference) -> None:
    """In one batch with unadjusted requests, which must not be touched."""
    adjusted = [greedy(prompt(5), 40, **params) for params in PENALTIES.values()]
    untouched = [greedy(prompt(5), 40)]
    plain = ids(reference.answers([*adjusted, *untouched]))
    changed = [answer != plain[-1] for answer in plain[:-1]]
    assert all(changed[:4]), "a penalty that changes nothing tests nothing"
    found = ids(jetspec.generate_all([*adjusted, *untouched], 8))
    names = [*PENALTIES, "untouched"]
    assert [(names[i], at) for i, at in differing(plain, found)] == []


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        ({"regex": r"(yes|no), [a-z]{3,8}\."}, r"(yes|no), [a-z]{3,8}\."),
        ({"ebnf": 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]+'}, r"\[\d+(,\d+)*\]"),
    ],
    ids=["regex", "ebnf"],
)
def test_grammars(
    grammar: dict[str, str], pattern: str, temperature: float, jetspec: Server
) -> None:
    params = {"temperature": temperature, "max_new_tokens": 64, **grammar}
    answer = jetspec.generate({"input_ids": prompt(6), "sampling_params": params})
    assert re.fullmatch(pattern, answer["text"]) or (
        answer["meta_info"]["finish_reason"]["type"] == "length"
    ), answer["text"]


def test_json_schema_equals_plain(jetspec: Server, reference: Reference) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
    }
    request = greedy(prompt(7), 96, json_schema=json.dumps(schema))
    [plain] = reference.answers([request])
    answer = jetspec.generate(request)
    assert answer["output_ids"] == plain["output_ids"]
    value = json.loads(answer["text"])
    assert set(value) == {"name", "age", "tags"}
    assert 0 <= value["age"] <= 99


# -- cache and life cycle ------------------------------------------------------------------


def test_cached_tokens_are_reported_and_flushed(jetspec: Server) -> None:
    request = greedy(prompt(8), 8)
    jetspec.flush()
    assert jetspec.generate(request)["meta_info"]["cached_tokens"] == 0
    again = jetspec.generate(request)["meta_info"]["cached_tokens"]
    assert again >= len(request["input_ids"]) - 1
    jetspec.flush()
    assert jetspec.used_tokens() == 0
    assert jetspec.generate(request)["meta_info"]["cached_tokens"] == 0


def test_abort_mid_stream(jetspec: Server, reference: Reference) -> None:
    """The aborted request ends; another one beside it is not disturbed."""
    jetspec.flush()
    body = {**greedy(prompt(9), 300, ignore_eos=True), "rid": "to-be-aborted"}
    last: dict[str, Any] = {}
    for count, event in enumerate(events(jetspec, "/generate", body)):
        if count == 2:
            answer = jetspec.client.post("/abort_request", json={"rid": "to-be-aborted"})
            assert answer.status_code == 200
        last = event
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert last["meta_info"]["completion_tokens"] < 300
    request = greedy(prompt(0), 7, ignore_eos=True)
    assert jetspec.generate(request)["output_ids"] == ids(reference.answers([request]))[0]


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_pause_and_continue(mode: str, jetspec: Server, reference: Reference) -> None:
    request = greedy(prompt(1), 40)
    [plain] = reference.answers([request])
    tokens: list[int] = []
    for count, event in enumerate(events(jetspec, "/generate", request)):
        if count == 1:
            try:
                jetspec.post("/pause_generation", {"mode": mode})
            finally:
                jetspec.post("/continue_generation", {})
        tokens = event["output_ids"]
    assert tokens == plain["output_ids"]


def parameters(**given: Any) -> dict[str, Any]:
    return {"text": "a", "sampling_params": {"max_new_tokens": 4, **given}}


DEADLY = {
    "empty": ({"text": ""}, "no tokens"),
    "no_ids": ({"input_ids": []}, "input_ids cannot be empty"),
    "large_id": ({"input_ids": [10**9]}, "input_ids holds"),
    "negative_id": ({"input_ids": [5, -1]}, "input_ids holds"),
    "top_k": (parameters(top_k=10**12), "top_k = 1000000000000"),
    "stop_token_ids": (parameters(stop_token_ids=[10**9], min_new_tokens=2), "stop_token_ids"),
    "bias": (parameters(logit_bias={"5": 1e39}, temperature=1), "logit_bias.5"),
    "penalty": (parameters(repetition_penalty=1e-40), "repetition_penalty"),
    "top_logprobs": (
        {**parameters(), "return_logprob": True, "top_logprobs_num": 10**6},
        "top_logprobs_num",
    ),
    "image": ({**parameters(), "image_data": "data:image/png;base64,AAAA"}, "image_data"),
    "stop": (parameters(stop=""), "stop holds an empty string"),
    "stop_regex": (parameters(stop_regex="("), "stop_regex"),
    "logprob_start": (
        {**parameters(), "return_logprob": True, "logprob_start_len": -5},
        "logprob_start_len",
    ),
}
"""What would end the scheduler or be misread, and what the refusal names."""


@pytest.mark.parametrize("name", DEADLY)
def test_a_request_that_sglang_would_not_survive_or_understand_is_refused(
    name: str, jetspec: Server, reference: Reference
) -> None:
    body, named = DEADLY[name]
    for server in (jetspec, reference.server()):
        answer = server.client.post("/generate", json=body)
        assert answer.status_code == 400, answer.text
        assert named in answer.text
        assert len(server.generate(greedy(prompt(0), 4))["output_ids"]) == 4


WEIGHTS = {
    "/update_weights_from_disk": {"model_path": "/nope"},
    "/update_weights_from_tensor": {"serialized_named_tensors": []},
    "/begin_weight_update": {},
    "/weights_checker": {"action": "reset_tensors"},
    "/release_memory_occupation": {},
    "/resume_memory_occupation": {},
}


@pytest.mark.parametrize("route", WEIGHTS)
def test_weights_stay_as_they_are(route: str, jetspec: Server, reference: Reference) -> None:
    for server in (jetspec, reference.server()):
        answer = server.client.post(route, json=WEIGHTS[route])
        assert answer.status_code == 400, answer.text
        assert "start another server" in answer.text
        assert len(server.generate(greedy(prompt(0), 4))["output_ids"]) == 4


def test_weights_can_be_checked(jetspec: Server) -> None:
    answer = jetspec.client.post("/weights_checker", json={"action": "checksum"})
    assert answer.status_code == 200, answer.text


def test_health(jetspec: Server) -> None:
    assert jetspec.client.get("/health").status_code == 200
    assert jetspec.client.get("/health_generate").status_code == 200


def vanish(server: Server, index: int, seconds: float) -> None:
    """Open a stream and drop the connection after a while."""
    body = {**greedy(prompt(index % 5), 300, ignore_eos=True), "stream": True}
    with (
        contextlib.suppress(httpx.TimeoutException),
        httpx.Client(base_url=server.url, timeout=seconds, trust_env=False) as client,
        client.stream("POST", "/generate", json=body) as answer,
    ):
        for _ in zip(range(2), answer.iter_lines(), strict=False):
            pass


@pytest.mark.parametrize("times", [12, pytest.param(100, marks=pytest.mark.full)])
def test_vanishing_clients_leak_nothing(times: int, jetspec: Server) -> None:
    jetspec.flush()
    idle, said = jetspec.used_tokens(), len(jetspec.log_text())
    for index in range(times):
        vanish(jetspec, index, 0.2 + 0.1 * (index % 8))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        answer = jetspec.client.post("/flush_cache", params={"timeout": 30})
        if answer.status_code == 200 and jetspec.used_tokens() == idle:
            break
        time.sleep(1)
    assert jetspec.used_tokens() == idle
    assert "memory leak" not in jetspec.log_text()[said:]
