"""Files of a head folder: config.json, *.safetensors, and an optional draft_vocab_ids.npy.

Contract: reads headers and small arrays; weights are read only by `load_tensors` and
`check_finite`. `resolve_head` is the one place that may use the network (a hub id). Errors are
ValueError or FileNotFoundError that name the folder and every tensor at fault.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from jetspec_sglang.draft.config import HeadConfig

DRAFT_VOCAB_FILE = "draft_vocab_ids.npy"
FLOAT_DTYPES = ("BF16", "F16", "F32")

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ("config.json", "*.safetensors", DRAFT_VOCAB_FILE)


def resolve_head(head: str | Path) -> Path:
    """Folder of a head given as a folder, a hub id, or either with `::subfolder`.

    An existing folder wins over a hub repository of the same name. Raises FileNotFoundError when
    neither is there.
    """
    root, _, subfolder = str(head).partition("::")
    if subfolder and ".." in Path(subfolder).parts:
        raise ValueError(f"draft head {head}: the subfolder may not contain '..'")
    local = Path(root).expanduser()
    if not local.is_dir():
        if not _HUB_ID.fullmatch(root):
            raise FileNotFoundError(f"draft head {head}: no such folder, and not a hub id")
        local = _download(root, subfolder)
    folder = local / subfolder if subfolder else local
    if not folder.is_dir():
        raise FileNotFoundError(f"draft head {head}: {root} has no folder {subfolder}")
    return folder


def _download(repo: str, subfolder: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    prefix = f"{subfolder}/" if subfolder else ""
    try:
        return Path(snapshot_download(repo, allow_patterns=[prefix + name for name in _HUB_FILES]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise FileNotFoundError(
            f"draft head {repo}: no such folder, and the hub does not give it: {error}"
        ) from error


def expected_tensors(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the release's layout: 11 a layer and 3 more."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    layer = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "self_attn.q_norm.weight": (config.head_dim,),
        "self_attn.k_norm.weight": (config.head_dim,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"layers.{index}.{name}": shape
        for index in range(config.num_hidden_layers)
        for name, shape in layer.items()
    }
    shapes["fc.weight"] = (hidden, config.num_taps * config.target_hidden_size)
    shapes["hidden_norm.weight"] = (hidden,)
    shapes["norm.weight"] = (hidden,)
    return shapes


def check_checkpoint(folder: str | Path, config: HeadConfig) -> None:
    """Compare the headers of every *.safetensors file with `expected_tensors(config)`.

    Raises ValueError that names each missing, unexpected, wrong-shaped or non-float tensor.
    """
    found = _headers(Path(folder))
    expected = expected_tensors(config)
    problems = [f"missing {name} {list(expected[name])}" for name in expected if name not in found]
    problems += [f"unexpected {name}" for name in sorted(found) if name not in expected]
    for name, (shape, dtype) in found.items():
        if name in expected and shape != expected[name]:
            problems.append(f"{name} has shape {list(shape)}, wanted {list(expected[name])}")
        if name in expected and dtype not in FLOAT_DTYPES:
            problems.append(f"{name} has dtype {dtype}, wanted one of {', '.join(FLOAT_DTYPES)}")
    if problems:
        raise ValueError(f"draft head {folder}: " + "; ".join(problems))


def check_finite(folder: str | Path) -> None:
    """ValueError that names the tensors of a checked head that hold NaN or infinite values."""
    broken = []
    for path in _weight_files(Path(folder)):
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
            broken += [name for name in names if not file.get_tensor(name).isfinite().all()]
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        raise ValueError(
            f"draft head {folder}: NaN or infinite values in {', '.join(broken[:3])}{more}"
        )


def load_tensors(folder: str | Path, config: HeadConfig) -> dict[str, torch.Tensor]:
    """All tensors of a checked head, on the CPU, in the dtype they are stored in."""
    check_checkpoint(folder, config)
    tensors: dict[str, torch.Tensor] = {}
    for path in _weight_files(Path(folder)):
        tensors.update(load_file(path))
    return tensors


def load_draft_vocab(folder: str | Path, vocab_size: int) -> np.ndarray | None:
    """Ids the head drafts from, int64 ascending; None when it drafts from the whole vocabulary."""
    path = Path(folder) / DRAFT_VOCAB_FILE
    if not path.exists():
        return None
    try:
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a plain NumPy array: {error}") from None
    if not isinstance(ids, np.ndarray):
        raise ValueError(f"{path}: must hold one array")
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: must be a non-empty vector of integers, is {ids.dtype} {list(ids.shape)}"
        )
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise ValueError(f"{path}: ids reach from {low} to {high}, allowed 0 to {vocab_size - 1}")
    ids = ids.astype(np.int64)
    if np.any(np.diff(ids) <= 0):
        raise ValueError(f"{path}: ids must be ascending and without duplicates")
    return ids


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickled = sorted(
        path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern)
    )
    hint = f" ({', '.join(pickled)}: pickled weights are refused, convert them)" if pickled else ""
    raise FileNotFoundError(f"draft head {folder}: no *.safetensors file there{hint}")


def _headers(folder: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    if name in found:
                        raise ValueError(f"draft head {folder}: {name} is in two files")
                    part = file.get_slice(name)
                    found[name] = (tuple(part.get_shape()), part.get_dtype())
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path}: truncated or damaged: {error}") from None
    return found
