"""The embedded target with fewer layers: the same code in the engine, shorter rounds, odd text.

`JETSPEC_TEST_LAYERS` says how many layers the servers of the integration tests have; `make test`
sets it, without it they have all. What is served as it ships (`jetspec serve`) is never cut.
I/O: reads the target's folder, writes the cut one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

LAYERS = "JETSPEC_TEST_LAYERS"
LAST = 2
"""Layers kept from the end: without them hardly two tokens of an answer differ."""
SHARPER = 2.0
"""Factor of all logits: few layers leave them nearly flat, and a sampled token hardly ever is a draft.
The largest logit stays the largest."""
FINAL_NORM = "model.norm.weight"
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.*)")


def cut(target: Path, folder: Path, count: int) -> Path:
    """`target` with its first `count - LAST` and its last `LAST` layers, as a folder in `folder`."""
    config = json.loads((target / "config.json").read_text())
    whole = config["num_hidden_layers"]
    if not LAST < count <= whole:
        raise ValueError(f"{LAYERS} is {count}: must be {LAST + 1} to {whole}")
    kept = [*range(count - LAST), *range(whole - LAST, whole)]
    made = folder / f"{target.name}-{count}-layers"
    made.mkdir()
    for file in target.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            (made / file.name).symlink_to(file)
    (made / "config.json").write_text(json.dumps(config | {"num_hidden_layers": count}))
    with safe_open(target / "model.safetensors", "pt") as weights:
        names = {name: new for name in weights.keys() if (new := _renamed(name, kept))}  # noqa: SIM118
        tensors = {new: weights.get_tensor(name) for name, new in names.items()}
    tensors[FINAL_NORM] = tensors[FINAL_NORM] * SHARPER
    save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
    return made


def _renamed(name: str, kept: Sequence[int]) -> str | None:
    """A tensor's name in the cut target; None where its layer is left out."""
    layer = _LAYER.fullmatch(name)
    if layer is None:
        return name
    number = int(layer[1])
    return f"model.layers.{kept.index(number)}.{layer[2]}" if number in kept else None
