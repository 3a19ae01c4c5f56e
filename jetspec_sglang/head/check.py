"""`check_head`: every check of a head before a server loads it.

Contract: doctor, serve and engine all use this check. It raises nothing: problems are in the
findings. I/O: reads the head's files, weights included; asks the hub for a head that is not on
disk.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jetspec_sglang.head.checkpoint import (
    load_draft_vocab,
    not_finite,
    resolve_head,
    tensor_findings,
)
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.finding import Finding, HeadError


@dataclass(frozen=True, slots=True)
class SoundHead:
    """A head that may be served."""

    folder: Path
    config: HeadConfig
    draft_vocab: np.ndarray | None
    warnings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The result. `head` is None if a finding forbids serving it."""

    name: str
    head: SoundHead | None
    findings: tuple[Finding, ...]

    def require(self) -> SoundHead:
        """Returns the head, or raises HeadError with all problems that forbid serving it."""
        if self.head is None:
            failures = [finding for finding in self.findings if finding.severity == "fail"]
            raise HeadError(failures, f"draft head {self.name}")
        return self.head


def check_head(name: str, target: Any | None) -> HeadReport:
    """Check a head, and whether it fits a target.

    name: a folder or hub id. target: a transformers config, a mapping like config.json, or None.
    """
    findings: list[Finding] = []
    try:
        folder = resolve_head(name)
        config = HeadConfig.from_folder(folder)
        if target is not None:
            findings += config.target_findings(target)
        findings += tensor_findings(folder, config) or not_finite(folder)
        vocab = load_draft_vocab(folder, config.vocab_size)
    except HeadError as error:
        return HeadReport(name, None, (*findings, *error.findings))
    if any(finding.severity == "fail" for finding in findings):
        return HeadReport(name, None, tuple(findings))
    return HeadReport(name, SoundHead(folder, config, vocab, tuple(findings)), tuple(findings))


def read_target(model: str | None) -> dict[str, Any] | None:
    """config.json of a target that is a folder; None if it is not on this disk."""
    file = None if model is None else Path(model).expanduser() / "config.json"
    if file is None or not file.is_file():
        return None
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{file}: must contain one JSON object")
    return raw
