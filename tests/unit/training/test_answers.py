"""Answers through a faked /generate: resumable, cut at the stop, and clear of held-out prompts."""

import asyncio
import itertools
import json

import httpx
import pytest
import respx

from jetspec_sglang.training.answers import Generator, Sampling, collect_answers, write_prompts
from jetspec_sglang.training.prompts import ChatTemplate, HeldOut
from jetspec_sglang.training.provenance import remember, target_hash
from jetspec_sglang.training.responses import load

URL = "http://server"
STOP = 2


class Letters:
    """A tokenizer of letters: id = place in the alphabet + 10."""

    chat_template = "yes"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return f"<{messages[0]['content']}>"

    def encode(self, text, add_special_tokens=False):
        return [3 if c == "<" else 4 if c == ">" else ord(c) for c in text]

    def decode(self, ids):
        return "".join(chr(i) for i in ids)


@pytest.fixture
def template():
    return ChatTemplate.of(Letters(), [STOP])


def generator():
    return Generator(URL, {}, concurrency=3)


def serve(answer):
    """Fake /generate: `answer(body)` gives the output ids. Returns the bodies it saw."""
    bodies = []

    def reply(request):
        body = json.loads(request.content)
        bodies.append(body)
        return httpx.Response(200, json={"output_ids": answer(body)})

    respx.post(f"{URL}/generate").mock(side_effect=reply)
    return bodies


def collect(template, messages, folder, **options):
    asyncio.run(
        collect_answers(
            generator(), template, messages, "made", folder, Sampling(8), shard_size=2, **options
        )
    )


@respx.mock
def test_answers_are_kept_with_their_prompts_and_cut_at_the_stop(tmp_path, template):
    bodies = serve(lambda body: [body["input_ids"][1], 50, STOP, 60])
    messages = ["abc", "def", "ghi"]
    collect(template, messages, tmp_path)
    data = load(tmp_path)
    assert len(data) == 3
    for i, message in enumerate(messages):
        prompt = template.render(message)
        assert data.prompt(i).tolist() == prompt
        assert data.sequence(i).tolist() == [*prompt, ord(message[0]), 50, STOP]
    assert bodies[0]["sampling_params"] == {
        "max_new_tokens": 8,
        "temperature": 0.0,
        "stop_token_ids": [STOP],
    }


@respx.mock
def test_a_second_call_asks_only_for_what_is_missing(tmp_path, template):
    serve(lambda body: [50, STOP])
    collect(template, ["abc", "def"], tmp_path)
    bodies = serve(lambda body: [51, STOP])
    collect(template, ["abc", "new", "def"], tmp_path)
    assert [body["input_ids"] for body in bodies] == [template.render("new")]
    assert len(load(tmp_path)) == 3


@respx.mock
def test_a_refusal_is_reported(tmp_path, template):
    respx.post(f"{URL}/generate").mock(return_value=httpx.Response(400, text="too long"))
    with pytest.raises(ConnectionError, match="HTTP 400: too long"):
        collect(template, ["abc"], tmp_path)


@respx.mock
def test_self_written_prompts(tmp_path, template):
    turns = itertools.cycle(
        ["a held out one", "too short", "first good prompt", "First good prompt!", "second of them"]
    )
    bodies = serve(lambda body: [*map(ord, next(turns)), STOP])
    file = tmp_path / "prompts.jsonl"

    def write(count):
        return asyncio.run(
            write_prompts(generator(), template, file, count, HeldOut(["A held-out one."]), seed=7)
        )

    assert write(2) == ["first good prompt", "second of them"]
    assert all(body["input_ids"] == list(template.before) for body in bodies)
    seeds = [body["sampling_params"]["sampling_seed"] for body in bodies]
    assert len(set(seeds)) == len(seeds)
    seen = len(bodies)
    assert write(2) == ["first good prompt", "second of them"]
    assert len(bodies) == seen


@respx.mock
def test_turns_that_run_on_are_not_prompts(tmp_path, template):
    serve(lambda body: list(map(ord, "a turn without end")))
    with pytest.raises(ValueError, match="0 usable prompts"):
        asyncio.run(write_prompts(generator(), template, tmp_path / "p.jsonl", 1, HeldOut([])))


def test_template(template):
    assert template.before == (3,)
    assert template.render("a") == [3, 97, 4]
    tokenizer = Letters()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        ChatTemplate.of(tokenizer, [STOP])


def test_held_out_ignores_case_and_punctuation():
    held = HeldOut(["What is 2 + 2?"])
    assert "what is 2+2" in held
    assert "what is 2+3" not in held
    assert held.digest() == HeldOut(["WHAT is 2 2"]).digest() != HeldOut([]).digest()


def test_provenance_refuses_another_target(tmp_path):
    facts = {"target": "a", "target_sha256": "1", "sampling": {}, "chat_template_sha256": "x"}
    remember(tmp_path, facts, "one", {"licence": "MIT"})
    remember(tmp_path, facts, "two", {"licence": "CC0"})
    assert json.loads((tmp_path / "provenance.json").read_text())["sources"].keys() == {
        "one",
        "two",
    }
    with pytest.raises(ValueError, match="target_sha256 = '1', this run has '2'"):
        remember(tmp_path, facts | {"target_sha256": "2"}, "one", {})


def test_target_hash_follows_the_weights(tmp_path):
    assert target_hash("some/hub-id") is None
    (tmp_path / "model.safetensors").write_bytes(b"a")
    first = target_hash(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"b")
    assert first != target_hash(str(tmp_path))
