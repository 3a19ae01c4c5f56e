"""`Record`: the result of one request, as in `requests.jsonl`.

Contract: pure. Times are seconds after the start of the run. Latencies of an open loop count from
the moment the request was due, so that a late client does not make the server look faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Status = Literal["ok", "failed", "aborted", "unfinished"]


@dataclass(slots=True)
class Record:
    """One request. `progress` holds (time, tokens so far) for each chunk with text.

    `aborted`: cut off by this client on purpose. `unfinished`: still running when the run ended.
    `error_kind`: connect, http, stream, stalled, timeout, cut, empty, aborted_by_server, lost.
    """

    index: int
    due: float
    sent: float = 0.0
    end: float = 0.0
    status: Status = "failed"
    error_kind: str = ""
    error: str = ""
    http_status: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    max_tokens: int = 0
    chunks: int = 0
    counted: bool = False
    finish_reason: str = ""
    verify_rounds: int = 0
    accepted_drafts: int = 0
    progress: list[tuple[float, int]] = field(default_factory=list)
    warmup: bool = False
    budget_start: int | None = None
    budget_end: int | None = None
    prompt: str = ""
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def lag(self) -> float:
        """Seconds between being due and being sent."""
        return self.sent - self.due

    @property
    def ttft(self) -> float | None:
        """Seconds from being due to the first text."""
        return self.progress[0][0] - self.due if self.progress else None

    @property
    def e2e(self) -> float:
        """Seconds from being due to the last text."""
        return (self.progress[-1][0] if self.progress else self.end) - self.due

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first chunk; None where nothing came after it.

        Where the server does not count while it streams, the first chunk is taken for one token.
        """
        if len(self.progress) < 2:
            return None
        (first, before), (last, _) = self.progress[0], self.progress[-1]
        after = self.completion_tokens - (before if self.counted else 1)
        return (last - first) / after if after > 0 else None

    @property
    def gaps(self) -> list[tuple[float, int]]:
        """(seconds per token, tokens) between chunks, where the tokens of a chunk are known."""
        if not self.counted and self.chunks != self.completion_tokens:
            return []
        found = []
        for (t0, n0), (t1, n1) in zip(self.progress, self.progress[1:], strict=False):
            if n1 > n0:
                found.append(((t1 - t0) / (n1 - n0), n1 - n0))
        return found

    def as_dict(self) -> dict[str, Any]:
        """A JSON object: the fields, and the latencies in ms."""
        shown = asdict(self)
        ttft, tpot = self.ttft, self.tpot
        shown["ttft_ms"] = None if ttft is None else 1000 * ttft
        shown["tpot_ms"] = None if tpot is None else 1000 * tpot
        shown["e2e_ms"] = 1000 * self.e2e
        return shown

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Record:
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in row.items() if name in known}
        values["progress"] = [(float(t), int(n)) for t, n in values.get("progress", ())]
        return cls(**values)


def lost(index: int, due: float, why: str) -> Record:
    """A request that was due but was never reported."""
    return Record(index, due, sent=due, end=due, error_kind="lost", error=why)
