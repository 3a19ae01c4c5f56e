"""A request ends where plain decoding ends it, however its tokens are cut into rounds.

SGLang's own `Req` and finish check on both sides: one token a step, and runs of any length.
"""

from array import array
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req
from sglang.srt.sampling.sampling_params import SamplingParams

from jetspec_sglang import bridge
from jetspec_sglang.hooks import finish

PIECES = [b"", b"a", b"b", b" ", b"ab", b"ba", b" a", b"a b", b"\xc3", b"\xa9", b"\xc3\xa9", b".\n"]
EOS = len(PIECES)
EXTRA_STOP = EOS + 1
PROMPT = [1, 2, 3]
TEXTS = ["a", "b", "ab", "ba", "a b", "é", "bé", ".\n", "aba", "bb a"]
PATTERNS = [r"a+b", r"b$", r"^a", r"(ab){2}", r"é.", r" [ab]\b"]


class Tokenizer:
    """Byte pieces, so that a character can be spread over tokens and a token end in one."""

    eos_token_id = EOS
    additional_stop_token_ids = (EXTRA_STOP,)

    def encode(self, text, add_special_tokens=False):
        return list(text.encode())

    def decode(self, ids):
        pieces = [PIECES[i] if i < EOS else b"<end>" for i in ids]
        return b"".join(pieces).decode("utf-8", errors="replace")


class Grammar:
    """A stand-in that has ended when it has read `length` tokens."""

    def __init__(self, length):
        self.left = length
        self.finished = False

    def accept_token(self, token):
        self.left -= 1

    def is_terminated(self):
        return self.left <= 0


def request(grammar_length=None, **params):
    sampling = SamplingParams(**params)
    sampling.normalize(Tokenizer())
    req = Req("r", "", array("q", PROMPT), sampling, vocab_size=EXTRA_STOP + 1)
    req.tokenizer = Tokenizer()
    req.update_finish_state = partial(finish.check_last_token, Req.update_finish_state, req)
    req.grammar = None if grammar_length is None else Grammar(grammar_length)
    req.kv.kv_committed_len = len(PROMPT)
    return req


def outcome(req):
    reason = req.finished_reason and req.finished_reason.to_json()
    visible = list(req.output_ids_through_stop)
    return reason, visible, list(req.output_ids)


def plain(req, tokens):
    """One token a step, as SGLang does without speculation."""
    for i, token in enumerate(tokens):
        req.kv.kv_committed_len += i > 0
        req.output_ids.append(token)
        Req.update_finish_state(req)
        if req.grammar is not None:
            req.grammar.accept_token(token)
        if req.finished():
            break
    return req


def in_rounds(req, tokens, lengths):
    """The first token from prefill, then rounds of the given lengths, as SGLang commits them."""
    plain(req, tokens[:1])
    at = 1
    for length in lengths:
        if req.finished() or at >= len(tokens):
            break
        at += len(commit(req, tokens[at : at + length]))
    return req


def commit(req, run):
    """A round's result: SGLang's reading of it by the grammar, then its finish check."""
    read = []

    def advance(processor, result, batch):
        for token in run:
            read.append(token)
            if req.grammar is not None:
                req.grammar.accept_token(token)
                if req.grammar.is_terminated():
                    break

    def resolve(processor, result, batch):
        finish.note_ended_grammars(advance, processor, result, batch)
        req.kv.kv_committed_len += len(read)
        return [read]

    result, batch = SimpleNamespace(grammar_advanced=False), SimpleNamespace(reqs=[req])
    [kept] = finish.cut_runs(resolve, None, result, batch)
    req.output_ids.extend(kept)
    req.update_finish_state(len(kept))
    return kept


@pytest.fixture(autouse=True)
def _jetspec(monkeypatch):
    monkeypatch.setattr(bridge, "runs_jetspec", lambda: True)


params = st.fixed_dictionaries(
    {
        "max_new_tokens": st.integers(1, 30),
        "stop": st.lists(st.sampled_from(TEXTS), max_size=4),
        "stop_regex": st.lists(st.sampled_from(PATTERNS), max_size=2),
        "stop_token_ids": st.lists(st.integers(4, EXTRA_STOP), max_size=2),
        "ignore_eos": st.booleans(),
    }
)


@settings(max_examples=400, deadline=None)
@given(
    params=params,
    tokens=st.lists(st.integers(0, EXTRA_STOP), min_size=1, max_size=40),
    lengths=st.lists(st.integers(1, 16), min_size=40, max_size=40),
    grammar_length=st.one_of(st.none(), st.integers(2, 30)),
)
def test_any_rounds_end_as_single_tokens_do(params, tokens, lengths, grammar_length):
    expected = plain(request(grammar_length, **params), tokens)
    found = in_rounds(request(grammar_length, **params), tokens, lengths)
    assert outcome(found) == outcome(expected)
    assert found.finished_len == expected.finished_len
    assert found.kv.kv_committed_len == expected.kv.kv_committed_len


def test_the_stop_that_is_complete_first_wins_not_the_one_listed_first():
    tokens = [3, 2, 1]  # " ", "b", "a"
    req = in_rounds(request(stop=["a", "b"]), [1, *tokens], [3])
    assert req.finished_reason.matched == "a"
    req = in_rounds(request(stop=["ba", "b"]), [3, *tokens], [3])
    assert req.finished_reason.matched == "b"
    assert list(req.output_ids) == [3, 3, 2]


def test_a_stop_token_wins_over_a_string_that_comes_after_it():
    req = in_rounds(request(stop=["b"], stop_token_ids=[3]), [1, 1, 3, 2, 2], [4])
    assert req.finished_reason.matched == 3
    assert list(req.output_ids) == [1, 1, 3]


def test_a_token_outside_the_vocabulary_ends_where_it_stands():
    req = in_rounds(request(stop=["b"]), [1, 1, 999, 2], [3])
    assert req.finished_reason.matched == "NaN happened"
    assert len(req.output_ids_through_stop) == 3


def test_an_abort_takes_the_whole_run():
    req = request(stop=["b"])
    plain(req, [1])
    req.to_finish = FINISH_ABORT("gone")
    assert commit(req, [2, 1, 1]) == [2, 1, 1]
    assert isinstance(req.finished_reason, FINISH_ABORT)


def test_a_grammar_ends_the_request_one_token_after_its_last_as_in_plain_decoding():
    tokens = [1, 1, 2, 3, 2, 1]
    for length in (1, 2, 5):
        req = in_rounds(request(3, ignore_eos=True), tokens, [length] * 6)
        assert list(req.output_ids) == tokens[:4]
        assert req.finished_reason.matched == tokens[3]


def test_the_check_leaves_the_request_as_it_was():
    req = request(4, stop=["b"])
    plain(req, [1])
    grammar = req.grammar
    assert finish.tokens_to_finish(req, [1, 2, 1]) == 2
    assert (req.finished_reason, req.finished_len, req.grammar) == (None, None, grammar)
    assert list(req.output_ids) == [1]


def test_other_algorithms_are_left_alone(monkeypatch):
    monkeypatch.setattr(bridge, "runs_jetspec", lambda: False)
    req = request(stop=["b"])
    plain(req, [1])
    assert commit(req, [2, 1, 1]) == [2, 1, 1]
    assert list(req.output_ids_through_stop) == [1, 2]
