"""`provenance.json` of a folder of answers: the target that wrote them, the sampling, and the
prompts.

Contract: `remember` writes it once and refuses to mix answers of another target or sampling into
the same folder. I/O: that file, and the target's weight files when they are on this machine.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

_FIXED = ("target", "target_sha256", "sampling", "chat_template_sha256")


def target_hash(model_path: str) -> str | None:
    """SHA-256 over the names and bytes of a local folder's *.safetensors; None when not local."""
    folder = Path(model_path)
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def remember(folder: Path, facts: dict[str, Any], source: str, about: dict[str, Any]) -> None:
    """Add `source` to folder/provenance.json. ValueError when `facts` differ from those there."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "provenance.json"
    known = json.loads(file.read_text()) if file.exists() else {**facts, "sources": {}}
    for name in _FIXED:
        if known.get(name) != facts.get(name):
            raise ValueError(
                f"{folder} holds answers with {name} = {known.get(name)!r}, this run has "
                f"{facts.get(name)!r}; give another --out"
            )
    known["sources"][source] = about
    file.write_text(json.dumps(known, indent=2) + "\n")
