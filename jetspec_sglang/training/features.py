"""The source of the target's features for a training step: a pass of the target, or a cache on
disk.

Contract: both sources answer `features(indices, tokens)` with the same `Features`; the cache holds
them in bfloat16, (taps + 1) · hidden · 2 bytes per token. It pays off if the data is read more than
once. Building it is resumable: sequences are recorded in a fixed order and counted in cache.json.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from jetspec_sglang.training.responses import Responses
from jetspec_sglang.training.target import Features, Recorder


class FeatureSource(Protocol):
    def features(self, indices: np.ndarray, tokens: Tensor) -> Features:
        """Features of sequences `indices`, whose right-padded ids are `tokens` [N, L]."""
        ...


class LiveFeatures:
    """A pass of the target in every step."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def features(self, indices: np.ndarray, tokens: Tensor) -> Features:
        return self.recorder(tokens)


class FeatureCache:
    """Recorded features of one set of responses, memory-mapped from `folder`."""

    def __init__(self, folder: Path, responses: Responses, width: int, hidden: int) -> None:
        self.folder = folder
        self.responses = responses
        tokens = len(responses.ids)
        folder.mkdir(parents=True, exist_ok=True)
        self.taps = _mapped(folder / "taps.bf16", tokens, width)
        self.final = _mapped(folder / "final.bf16", tokens, hidden)

    def build(
        self,
        recorder: Recorder,
        tokens_per_pass: int = 4096,
        progress: Callable[[int], None] = lambda tokens: None,
    ) -> None:
        """Record what is still missing. `progress` is told how many tokens each pass added."""
        state = self.folder / "cache.json"
        done = json.loads(state.read_text())["sequences"] if state.exists() else 0
        order = np.argsort(self.responses.lengths, kind="stable")
        while done < len(order):
            part = _similar(order[done:], self.responses.lengths, tokens_per_pass)
            padded = pad([self.responses.sequence(i) for i in part])
            recorded = recorder(padded)
            for row, index in enumerate(part):
                place = slice(*self.responses.offsets[index : index + 2])
                length = place.stop - place.start
                self.taps[place] = recorded.taps[row, :length].to(torch.bfloat16)
                self.final[place] = recorded.final[row, :length].to(torch.bfloat16)
            done += len(part)
            _write(state, {"sequences": done})
            progress(int(self.responses.lengths[part].sum()))

    def features(self, indices: np.ndarray, tokens: Tensor) -> Features:
        shape = (len(indices), tokens.shape[1])
        taps = self.taps.new_zeros((*shape, self.taps.shape[1]))
        final = self.final.new_zeros((*shape, self.final.shape[1]))
        for row, index in enumerate(indices):
            place = slice(*self.responses.offsets[index : index + 2])
            taps[row, : place.stop - place.start] = self.taps[place]
            final[row, : place.stop - place.start] = self.final[place]
        return Features(taps, final)


class JoinedCaches:
    """Caches of several shards, addressed as the responses joined in the same order."""

    def __init__(self, caches: Sequence[FeatureCache]) -> None:
        self.caches = caches
        self.ends = np.cumsum([len(cache.responses) for cache in caches])

    def features(self, indices: np.ndarray, tokens: Tensor) -> Features:
        rows = []
        for row, index in enumerate(indices):
            shard = int(np.searchsorted(self.ends, index, side="right"))
            start = int(self.ends[shard - 1]) if shard else 0
            rows.append(
                self.caches[shard].features(np.array([index - start]), tokens[row : row + 1])
            )
        return Features(torch.cat([r.taps for r in rows]), torch.cat([r.final for r in rows]))


def pad(sequences: Sequence[np.ndarray]) -> Tensor:
    """Right-padded ids int64 [N, L], 0 after the end."""
    padded = torch.zeros(len(sequences), max(len(s) for s in sequences), dtype=torch.int64)
    for row, sequence in enumerate(sequences):
        padded[row, : len(sequence)] = torch.from_numpy(np.ascontiguousarray(sequence))
    return padded


def _similar(order: np.ndarray, lengths: np.ndarray, tokens: int) -> np.ndarray:
    """The longest prefix of `order` (ascending lengths) whose padded size stays within `tokens`."""
    sizes = lengths[order[:tokens]] * np.arange(1, min(len(order), tokens) + 1)
    return order[: max(1, int(np.searchsorted(sizes, tokens, side="right")))]


def _mapped(path: Path, rows: int, width: int) -> Tensor:
    size = rows * width
    if path.exists() and path.stat().st_size != 2 * size:
        raise ValueError(f"{path}: holds {path.stat().st_size} bytes, wanted {2 * size}; delete it")
    flat = torch.from_file(str(path), shared=True, size=size, dtype=torch.bfloat16)
    return flat.view(rows, width)


def _write(path: Path, content: dict[str, int]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content))
    os.replace(partial, path)
