"""A streamed answer, read line by line into a `Record`.

Contract: pure; the caller reads the lines and says when each came. One chunk can hold several
tokens: with `continuous_usage_stats` each chunk says how many there are so far, without it the
last one does, and the tokens in between are spread evenly over the chunks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from loadtests.records import Record

_PREFIX = b"data:"
_DONE = b"[DONE]"


class StreamError(Exception):
    """What the server sent is an error or no answer; `kind` as in `Record.error_kind`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class StreamReader:
    """Fills one record from the lines of its answer."""

    def __init__(self, record: Record, *, keep_text: bool = False) -> None:
        self.record = record
        self.done = False
        self._keep = keep_text
        self._parts: list[str] = []
        self._tokens = 0

    def feed(self, line: bytes, now: float) -> None:
        """One line as it came at `now`. StreamError for an error of the server."""
        if not line.startswith(_PREFIX):
            return
        data = line[len(_PREFIX) :].strip()
        if data == _DONE:
            self.done = True
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            raise StreamError("stream", f"a chunk is not JSON: {data[:80]!r}") from None
        if not isinstance(chunk, dict):
            raise StreamError("stream", f"a chunk is not a JSON object: {data[:80]!r}")
        if chunk.get("error"):
            raise StreamError("stream", f"the server sent an error: {_message(chunk['error'])}")
        self._take(chunk, now)

    def finish(self) -> None:
        """The stream ended. StreamError unless the answer is whole."""
        record = self.record
        if record.finish_reason == "abort":
            raise StreamError("aborted_by_server", "the server aborted the request")
        if not self.done and not record.finish_reason:
            raise StreamError("cut", f"the stream ended after {record.chunks} chunks, unfinished")
        if not record.progress:
            raise StreamError("empty", "the answer has no text")
        record.status = "ok"

    def close(self) -> None:
        """Complete the record of what arrived: the text, and token counts of chunks without
        counts."""
        self.record.text = "".join(self._parts)
        if not self.record.counted:
            _spread(self.record)

    def _take(self, chunk: Mapping[str, Any], now: float) -> None:
        record = self.record
        usage = chunk.get("usage")
        choices = chunk.get("choices") or []
        choice = choices[0] if choices and isinstance(choices[0], dict) else {}
        text = _text(choice)
        if isinstance(usage, dict):
            self._take_usage(usage)
        known = self._known(usage, bool(choice)) if not record.progress else record.counted
        if known and not record.progress:
            record.counted = True
        more = record.counted and record.completion_tokens > self._tokens
        if text or more:
            record.chunks += bool(text)
            self._tokens = record.completion_tokens
            record.progress.append((now, self._tokens if record.counted else 0))
        if text and self._keep:
            self._parts.append(text)
        if choice.get("finish_reason"):
            record.finish_reason = str(choice["finish_reason"])
        self._take_speculation(chunk)

    def _take_usage(self, usage: Mapping[str, Any]) -> None:
        record = self.record
        record.completion_tokens = int(usage.get("completion_tokens") or 0)
        record.prompt_tokens = int(usage.get("prompt_tokens") or 0)
        details = usage.get("prompt_tokens_details") or {}
        record.cached_tokens = int(details.get("cached_tokens") or 0)

    def _known(self, usage: object, has_choice: bool) -> bool:
        """Whether this chunk, the first with tokens, says how many they are."""
        return isinstance(usage, dict) and has_choice and self.record.completion_tokens > 0

    def _take_speculation(self, chunk: Mapping[str, Any]) -> None:
        details = (chunk.get("sglext") or {}).get("spec_tokens_details")
        if isinstance(details, list):
            details = details[0] if details else None
        if isinstance(details, dict):
            self.record.verify_rounds = int(details.get("spec_verify_ct") or 0)
            self.record.accepted_drafts = int(details.get("spec_num_correct_drafts") or 0)


def _text(choice: Mapping[str, Any]) -> str:
    """Text of a chunk: of a chat, its reasoning included, or of a completion."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return str(delta.get("content") or delta.get("reasoning_content") or "")
    return str(choice.get("text") or "")


def _spread(record: Record) -> None:
    """Token counts of chunks that carried none: one in the first, the rest evenly."""
    count, chunks = record.completion_tokens or record.chunks, record.chunks
    record.completion_tokens = count
    record.progress = [
        (at, 1 + round((count - 1) * i / max(1, chunks - 1)) if count else 0)
        for i, (at, _) in enumerate(record.progress)
    ]


def _message(error: object) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(text).split())[:200]
