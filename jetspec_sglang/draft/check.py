"""`check_head`: whether a head folder is whole and fits a target, before anything is loaded.

Contract: reads the head's config.json and tensors, and the target's config.json when the
target is a folder; `resolve_head` may ask the hub for a head that is not on disk.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from jetspec_sglang.draft.checkpoint import (
    check_checkpoint,
    check_finite,
    load_draft_vocab,
    resolve_head,
)
from jetspec_sglang.draft.config import HeadConfig


def read_head(head: str) -> tuple[Path, HeadConfig, np.ndarray | None]:
    """Folder, config and draft vocabulary of a head whose files are whole.

    Raises ValueError or FileNotFoundError.
    """
    folder = resolve_head(head)
    config = HeadConfig.from_folder(folder)
    check_checkpoint(folder, config)
    check_finite(folder)
    return folder, config, load_draft_vocab(folder, config.vocab_size)


def check_head(head: str, target: str | None) -> None:
    """Refuse a head that is missing, damaged, or made for another target.

    `target`: a folder, or a name that is not looked at. Raises ValueError or FileNotFoundError.
    """
    _, config, _ = read_head(head)
    if target is None:
        return
    file = Path(target).expanduser() / "config.json"
    if file.is_file():
        text = json.loads(file.read_text(encoding="utf-8"))
        config.check_against_target(text.get("text_config", text))
