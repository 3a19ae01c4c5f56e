"""`python -m tests.support.record_exposition`: what a real server and controller expose, kept.

Starts the embedded model with its head, watches and drives it (`tests.support.live`), and writes
`tests/data/exposition/{engine,controller}.prom`: of every sample name one series for each set of
labels, with its TYPE and without its HELP. Run it after metrics changed. I/O: that folder, and the
processes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from jetspec_sglang.evaluation.datasets import load_prompts
from tests.support.live import drive, watched
from tests.support.served import serving

FOLDER = Path(__file__).parents[1] / "data" / "exposition"


def condensed(text: str) -> str:
    """One series of every name and set of labels."""
    kept: list[str] = []
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            kept.append(line)
        elif line and not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels = tuple(part.partition("=")[0] for part in rest.split('",'))
            if (name.split()[0], labels) not in seen:
                seen.add((name.split()[0], labels))
                kept.append(line)
    return "\n".join(kept) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with serving(folder) as served, watched(served, folder) as live:
            drive(live, load_prompts("chat"))
            FOLDER.mkdir(parents=True, exist_ok=True)
            for name, text in live.expositions().items():
                (FOLDER / f"{name}.prom").write_text(condensed(text))
                print(FOLDER / f"{name}.prom")


if __name__ == "__main__":
    main()
