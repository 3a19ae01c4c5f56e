"""`Responses`: token sequences (prompt and the target's answer), and the .npz shards that hold them.

Contract: a shard has `ids` (all sequences one after another), `offsets` (number of sequences + 1),
`response_start` (length of each prompt) and `source` (a label each); other arrays are ignored.
`load` and `save` do the I/O, `save` atomically; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Responses:
    """`ids` int64 [tokens], `offsets` int64 [n + 1], `response_start` int64 [n], `source` str [n]."""

    ids: np.ndarray
    offsets: np.ndarray
    response_start: np.ndarray
    source: np.ndarray

    def __post_init__(self) -> None:
        count = len(self.response_start)
        if len(self.offsets) != count + 1 or len(self.source) != count:
            raise ValueError(
                f"offsets, response_start and source describe {len(self.offsets) - 1}, {count} "
                f"and {len(self.source)} sequences"
            )
        lengths = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.ids) or np.any(lengths < 0):
            raise ValueError("offsets must ascend from 0 to the number of ids")
        if np.any(self.response_start < 1) or np.any(self.response_start > lengths):
            raise ValueError("response_start must be 1 to the length of its sequence")

    def __len__(self) -> int:
        return len(self.response_start)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def sequence(self, index: int) -> np.ndarray:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def prompt(self, index: int) -> np.ndarray:
        return self.sequence(index)[: self.response_start[index]]

    def take(self, indices: Sequence[int] | np.ndarray) -> Responses:
        return pack(
            [self.sequence(i) for i in indices],
            self.response_start[np.asarray(indices, dtype=np.int64)],
            self.source[np.asarray(indices, dtype=np.int64)],
        )

    def response_counts(self, vocab_size: int) -> np.ndarray:
        """How often each id occurs in the answers, int64 [vocab_size]."""
        place = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        answered = place >= np.repeat(self.response_start, self.lengths)
        return np.bincount(self.ids[answered], minlength=vocab_size)

    def digest(self) -> str:
        """SHA-256 of the ids and the offsets."""
        digest = hashlib.sha256(self.ids.astype(np.int64).tobytes())
        digest.update(self.offsets.astype(np.int64).tobytes())
        return digest.hexdigest()


def pack(
    sequences: Sequence[np.ndarray | Sequence[int]],
    response_start: Sequence[int] | np.ndarray,
    source: Sequence[str] | np.ndarray,
) -> Responses:
    lengths = [len(sequence) for sequence in sequences]
    ids = np.concatenate(
        [np.asarray(s, dtype=np.int64) for s in sequences] or [np.empty(0, np.int64)]
    )
    return Responses(
        ids,
        np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))),
        np.asarray(response_start, dtype=np.int64),
        np.asarray(source, dtype=np.str_),
    )


def join(parts: Sequence[Responses]) -> Responses:
    return pack(
        [part.sequence(i) for part in parts for i in range(len(part))],
        np.concatenate([part.response_start for part in parts]),
        np.concatenate([part.source for part in parts]),
    )


def load(path: str | Path) -> Responses:
    """One shard, or every shard of a folder in name order. ValueError names the file at fault."""
    path = Path(path)
    if path.is_dir():
        return join([load(file) for file in shards(path)])
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such shard or folder of shards")
    try:
        with np.load(path, allow_pickle=False) as shard:
            fields = {name: shard[name] for name in ("ids", "offsets", "response_start", "source")}
        return Responses(
            fields["ids"].astype(np.int64),
            fields["offsets"].astype(np.int64),
            fields["response_start"].astype(np.int64),
            fields["source"].astype(np.str_),
        )
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a shard of responses: {error}") from None


def shards(path: str | Path) -> list[Path]:
    """The shards of a folder in name order, or the one shard that `path` is."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.npz"))
    if not files:
        raise FileNotFoundError(f"{path}: no .npz shard there")
    return files


def load_all(paths: Iterable[str | Path]) -> Responses:
    return join([load(path) for path in paths])


def save(responses: Responses, path: str | Path) -> None:
    """Write one shard; ids take two bytes each where they fit."""
    path = Path(path)
    small = responses.ids.size == 0 or responses.ids.max() < 1 << 16
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez_compressed(
            file,
            ids=responses.ids.astype(np.uint16 if small else np.uint32),
            offsets=responses.offsets,
            response_start=responses.response_start.astype(np.int32),
            source=responses.source,
        )
    os.replace(partial, path)
