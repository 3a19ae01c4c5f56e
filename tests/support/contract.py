"""A recorded draft against the reference head on a transformers forward of the target."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training.target import Recorder, matrices

Record = dict[str, Any]
TIE = 1e-3
"""Log-prob distance below which two candidates may change places."""


@dataclass(slots=True)
class Comparison:
    """Counts of candidates; `gap`: the largest |Δ log-prob| of a candidate both sides rank."""

    candidates: int = 0
    equal: int = 0
    wrong: int = 0
    gap: float = 0.0

    @property
    def share(self) -> float:
        return self.equal / self.candidates


def read_trace(path: Path) -> dict[str, list[Record]]:
    """The trace's records by request id; a line that the server still writes is left out."""
    records: dict[str, list[Record]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            record = json.loads(line)
            records[record["rid"]].append(record)
    return records


class Contract:
    """The target in transformers, and heads on top of it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._features: dict[tuple[int, ...], torch.Tensor] = {}

    def head(self, folder: Path, causal: bool | None = None) -> HeadModel:
        """The reference of a head folder; `causal` overrides its flag."""
        head = HeadModel.from_folder(folder, *matrices(self.model)).eval()
        if causal is not None:
            head.config = HeadConfig.model_validate({**head.config.model_dump(), "causal": causal})
        return head

    @torch.inference_mode()
    def compare(
        self, head: HeadModel, sequence: Sequence[int], records: Sequence[Record]
    ) -> Comparison:
        """Served candidates of one request, whose tokens are `sequence`, against `head`'s."""
        features = self._taps(tuple(sequence), head.config.target_layer_ids)
        result = Comparison()
        by_depths: dict[int, list[Record]] = defaultdict(list)
        for record in records:
            assert sequence[record["position"]] == record["anchor"], "the anchor is not the token"
            by_depths[len(record["tokens"])].append(record)
        for depths, group in by_depths.items():
            positions = torch.tensor([[record["position"] for record in group]])
            anchors = torch.tensor([[record["anchor"] for record in group]])
            expected = head(features, positions, head.mask_block(anchors, depths + 1))[0]
            served = torch.tensor([record["tokens"] for record in group])
            logprobs = torch.tensor([record["logprobs"] for record in group])
            _compare(result, head, expected, served, logprobs)
        return result

    def _taps(self, sequence: tuple[int, ...], layers: Sequence[int]) -> torch.Tensor:
        """Of a request's tokens; kept, as several heads are compared on the same requests."""
        key = (*layers, -1, *sequence)
        if key not in self._features:
            recorder = Recorder(self.model, layers)
            self._features[key] = recorder(torch.tensor([list(sequence)])).taps
        return self._features[key]


def _compare(
    result: Comparison,
    head: HeadModel,
    expected: torch.Tensor,
    served: torch.Tensor,
    logprobs: torch.Tensor,
) -> None:
    """expected [R, D, V]; served ids and log-probs [R, D, W]."""
    values, index = expected.topk(served.shape[-1], dim=-1)
    best = index if head.draft_vocab is None else head.draft_vocab[index]
    columns = served
    if head.draft_vocab is not None:
        columns = torch.searchsorted(head.draft_vocab, served)
    own = expected.gather(-1, columns)
    same = best == served
    tied = (own - values).abs() < TIE
    result.candidates += served.numel()
    result.equal += int(same.sum())
    result.wrong += int((~same & ~tied).sum())
    result.gap = max(result.gap, float((own - logprobs).abs().max()))
