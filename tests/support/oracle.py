"""A SGLang plugin for tests: drafts the recorded continuation, imperfectly on purpose.

`JETSPEC_TEST_ORACLE` names a folder with `<digest of prompt ids>.json` (the recorded
continuation) and `bigrams.json` ({token: likely successors}). The head still runs; its
candidates are then replaced, so that long accepts, accepts of lower siblings, scattered KV
moves and misses all occur at chosen places, which no random head would produce.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

VARIABLE = "JETSPEC_TEST_ORACLE"
PLACES = (0, 1, 0, 2, 0, 0, 1, None, 0, 3, 1)
"""Sibling index of the true token by position; None leaves it out, which ends the accept."""


def digest(prompt_ids: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt_ids)).encode()).hexdigest()[:24]


def install(folder: Path, oracle: Path, repository: Path) -> dict[str, str]:
    """Write the plugin's distribution metadata; returns the environment that loads it."""
    info = folder / "jetspec_test_oracle-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jetspec-test-oracle\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[sglang.srt.plugins]\njetspec_test_oracle = tests.support.oracle:register\n"
    )
    path = os.pathsep.join([str(folder), str(repository), os.environ.get("PYTHONPATH", "")])
    return {"PYTHONPATH": path.rstrip(os.pathsep), VARIABLE: str(oracle)}


def register() -> None:
    """SGLang's plugin entry point."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("jetspec_sglang.round.drafter.Drafter.draft", propose, HookType.AROUND)


def propose(original: Any, drafter: Any, batch: Any, *args: Any) -> tuple[Any, Any]:
    """AROUND hook of `Drafter.draft`: [bs, D, W] tokens and log-probs."""
    tokens, logprobs = original(drafter, batch, *args)
    for i, req in enumerate(batch.reqs):
        plan(tokens[i], logprobs[i], list(req.origin_input_ids), list(req.output_ids))
    return tokens, logprobs


def plan(
    tokens: torch.Tensor, logprobs: torch.Tensor, prompt: list[int], output: list[int]
) -> None:
    """Overwrite one request's candidates [D, W] in place."""
    depths, width = tokens.shape
    truth = _continuation(digest(prompt))
    truth = truth[len(output) :] if truth[: len(output)] == output else []
    guesses = [output[-1]]
    for depth in range(depths):
        guesses = _successors(guesses, width)
        row = list(guesses)
        at = len(prompt) + len(output) + depth
        if depth < len(truth):
            row = [token for token in row if token != truth[depth]][: width - 1]
            place = PLACES[at % len(PLACES)]
            if place is not None:
                row.insert(min(place, width - 1), truth[depth])
        fill = (token for token in range(300, 300 + 3 * width) if token not in row)
        exclude = truth[depth] if depth < len(truth) else -1
        while len(row) < width:
            token = next(fill)
            if token != exclude:
                row.append(token)
        tokens[depth] = torch.tensor(row[:width])
        # Flat enough for siblings to be ranked before deep nodes, and different by position.
        step = 0.4 + 0.15 * (at % 4)
        logprobs[depth] = -0.3 - step * torch.arange(width, dtype=torch.float32)


def _successors(tokens: list[int], width: int) -> list[int]:
    table = _bigrams()
    found: dict[int, None] = {}
    for token in tokens:
        for follower in table.get(str(token), [])[: max(1, width // 2)]:
            found.setdefault(follower)
    return list(found)[:width]


def _bigrams() -> dict[str, list[int]]:
    return _recorded("bigrams") or {}


def _continuation(name: str) -> list[int]:
    return _recorded(name) or []


def _recorded(name: str) -> Any:
    """What the folder holds now, None where nothing is recorded yet: tests may record later."""
    path = Path(os.environ[VARIABLE]) / f"{name}.json"
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return _parsed(path, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _parsed(path: Path, _inode: int, _changed_at: int) -> Any:
    return json.loads(path.read_text())
