"""Records and configurations of these tests."""

from __future__ import annotations

from typing import Any

from loadtests.config import LoadConfig, load_config
from loadtests.records import Record


def config(**values: Any) -> LoadConfig:
    return load_config({"warmup": 0, **values})


def answered(
    index: int = 0, due: float = 0.0, ttft: float = 0.1, tpot: float = 0.01, tokens: int = 11
) -> Record:
    """One token after `ttft`, then one each `tpot` seconds."""
    progress = [(due + ttft + i * tpot, i + 1) for i in range(tokens)]
    return Record(
        index, due, sent=due, end=progress[-1][0], status="ok", completion_tokens=tokens,
        prompt_tokens=5, chunks=tokens, counted=True, progress=progress,
    )  # fmt: skip


def failed(index: int = 0, due: float = 0.0, kind: str = "http") -> Record:
    return Record(index, due, sent=due, end=due + 0.01, error_kind=kind, error="told to")
