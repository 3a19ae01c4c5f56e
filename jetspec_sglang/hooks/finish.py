"""Ends a request at the token where plain decoding would end it, even if a round commits more
tokens.

SGLang's finish check was written for one token per step. Given a run of tokens it prefers the stop
string that is listed first to the one that is complete first, and a stop string to a stop token
that came before it. So SGLang's own check is asked after every token of the run, and the run is cut
after the first token that finishes the request. What follows in SGLang (output ids,
log-probabilities, reasoning tokens, committed KV length) then sees the cut run alone.

A grammar that has ended finishes a plain request at the token after its last one, because plain
decoding shows the grammar a token after the check. Speculation shows it before the check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from jetspec_sglang import bridge

_ended: WeakSet[Any] = WeakSet()
"""Grammars that had ended before the run that was read last."""


def note_ended_grammars(
    original: Callable[..., None], processor: Any, result: Any, batch: Any
) -> None:
    """AROUND hook on the reading of a run by the batch's grammars, which happens once per run."""
    if not result.grammar_advanced:
        grammars = (req.grammar for req in batch.reqs if req.grammar is not None)
        _ended.update(grammar for grammar in grammars if grammar.is_terminated())
    original(processor, result, batch)


def cut_runs(
    original: Callable[..., list[list[int]]], processor: Any, result: Any, batch: Any
) -> list[list[int]]:
    """AROUND hook on the reading of a round's result: each request's run of committed tokens."""
    runs = original(processor, result, batch)
    if not bridge.runs_jetspec():
        return runs
    for i, req in enumerate(batch.reqs):
        if req.is_retracted or req.finished() or req.to_finish is not None:
            continue
        kept = tokens_to_finish(req, runs[i])
        if kept < len(runs[i]):
            # What lies behind is freed with the request, as every slot above this length.
            req.kv.kv_committed_len -= len(runs[i]) - kept
            runs[i] = runs[i][:kept]
    return runs


def check_last_token(original: Callable[..., None], req: Any, new_accepted_len: int = 1) -> None:
    """AROUND hook on SGLang's finish check: of a run that was cut only the last token is new."""
    if not bridge.runs_jetspec():
        original(req, new_accepted_len)
    elif req.grammar in _ended:
        original(req, min(new_accepted_len, 1))
    else:
        with _without_grammar(req):
            original(req, min(new_accepted_len, 1))


def tokens_to_finish(req: Any, run: Sequence[int]) -> int:
    """The number of tokens of `run` that the request takes; all of them if it does not finish
    earlier.

    The request is not changed.
    """
    before = len(req.output_ids)
    try:
        for count, token in enumerate(run[:-1], 1):
            req.output_ids.append(token)
            req.update_finish_state(1)
            if req.finished():
                return count
    finally:
        del req.output_ids[before:]
        req.finished_reason = req.finished_len = None
    return len(run)


@contextmanager
def _without_grammar(req: Any) -> Iterator[None]:
    grammar, req.grammar = req.grammar, None
    try:
        yield
    finally:
        req.grammar = grammar
