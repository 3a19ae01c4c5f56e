"""The settings of all cells of an experiment, stored in `experiment.json` next to the cells.

Contract: a folder has cells of one experiment only. To continue with other settings is refused.
More rates, seeds or tiers may be added. I/O: that file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jetspec_sglang.client.errors import UsageError

FILE = "experiment.json"


@dataclass(frozen=True, slots=True)
class Experiment:
    """`load`: options of the load generator that all cells share; `flags`: SGLang's own."""

    dtype: str
    load: dict[str, str]
    flags: tuple[str, ...]
    controller: tuple[str, ...] = ()

    def claim(self, out: Path) -> None:
        """Write the settings, or check them against those that are there."""
        out.mkdir(parents=True, exist_ok=True)
        file, mine = out / FILE, json.loads(json.dumps(asdict(self)))
        if not file.exists():
            file.write_text(json.dumps(mine, indent=1) + "\n")
            return
        theirs = json.loads(file.read_text())
        if different := _differences(theirs, mine):
            raise UsageError(
                f"--out {out} holds cells of another experiment ({'; '.join(different)}); "
                "choose another folder"
            )


def _differences(theirs: dict[str, Any], mine: dict[str, Any]) -> list[str]:
    found = []
    for key in sorted({*theirs, *mine}):
        old, new = theirs.get(key), mine.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new)
        elif old != new:
            found.append(f"{key} was {old}, is {new}")
    return found
