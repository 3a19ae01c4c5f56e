"""Files of a head folder: config.json, *.safetensors, and an optional draft_vocab_ids.npy.

Contract: reads headers and small arrays; weights are read only by `load_tensors` and `not_finite`.
Only `resolve_head` may use the network (a hub id). Problems raise a `HeadError` whose findings name
every bad file and tensor.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from jetspec_sglang.head.config import LFS_POINTER, HeadConfig, lfs_pointer
from jetspec_sglang.head.finding import Finding, HeadError

DRAFT_VOCAB_FILE = "draft_vocab_ids.npy"
FLOAT_DTYPES = ("BF16", "F16", "F32")

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OF_THE_TARGET = ("embed_tokens", "lm_head")
_EXPORT = "export the head again, in the layout of JetSpec's release"
_HUB_FILES = ("config.json", "*.safetensors", DRAFT_VOCAB_FILE)


def resolve_head(head: str | Path) -> Path:
    """Folder of a head given as a folder, a hub id, or either with `::subfolder`.

    An existing folder wins over a hub repository of the same name. Raises HeadError when neither
    is there.
    """
    root, _, subfolder = str(head).partition("::")
    if subfolder and ".." in Path(subfolder).parts:
        raise _nowhere(head, "the subfolder may not contain '..'")
    local = Path(root).expanduser()
    if not local.is_dir():
        if not _HUB_ID.fullmatch(root):
            raise _nowhere(head, "no such folder, and not a hub id")
        local = _download(root, subfolder)
    folder = local / subfolder if subfolder else local
    if not folder.is_dir():
        raise _nowhere(head, f"{root} has no folder {subfolder}")
    return folder


def _nowhere(head: str | Path, allowed: str) -> HeadError:
    remedy = "name the folder of a head, or a hub id like owner/name"
    return HeadError([Finding("not_found", f"draft head {head}", None, allowed, remedy)])


def _download(repo: str, subfolder: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    prefix = f"{subfolder}/" if subfolder else ""
    try:
        return Path(snapshot_download(repo, allow_patterns=[prefix + name for name in _HUB_FILES]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise _nowhere(repo, f"no such folder, and the hub did not provide it: {error}") from error


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
    """HeadError when the tensors are not those of the release's layout."""
    if found := tensor_findings(folder, config):
        raise HeadError(found, str(folder))


def tensor_findings(folder: str | Path, config: HeadConfig) -> list[Finding]:
    """What differs from `expected_tensors(config)` in the headers of every *.safetensors file.

    Raises HeadError for files that cannot be read.
    """
    held = _headers(Path(folder))
    expected = expected_tensors(config)
    found = [
        Finding("tensor_missing", name, None, f"missing, wanted {list(shape)}", _EXPORT)
        for name, shape in expected.items()
        if name not in held
    ]
    found += [_unexpected(name) for name in sorted(held) if name not in expected]
    for name, (shape, dtype) in held.items():
        if name not in expected:
            continue
        if shape != expected[name]:
            allowed = f"has shape {list(shape)}, wanted {list(expected[name])}"
            found.append(Finding("tensor_shape", name, None, allowed, _EXPORT))
        if dtype not in FLOAT_DTYPES:
            allowed = f"has dtype {dtype}, wanted one of {', '.join(FLOAT_DTYPES)}"
            found.append(Finding("tensor_type", name, None, allowed, _EXPORT))
    return found


def _unexpected(name: str) -> Finding:
    part = name.removesuffix(".weight").rpartition(".")[2]
    if part in _OF_THE_TARGET:
        allowed = f"unexpected; the engine uses the target's own {part}"
        remedy = f"export the head without {name}"
        return Finding("tensor_unexpected", name, None, allowed, remedy)
    return Finding("tensor_unexpected", name, None, "unexpected", _EXPORT)


def not_finite(folder: str | Path) -> list[Finding]:
    """The tensors of a head whose files are whole that hold NaN or infinite values."""
    broken = []
    for path in _weight_files(Path(folder)):
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
            broken += [name for name in names if not file.get_tensor(name).isfinite().all()]
    allowed = "holds NaN or infinite values"
    return [Finding("tensor_not_finite", name, None, allowed, _EXPORT) for name in broken]


def load_tensors(folder: str | Path, config: HeadConfig) -> dict[str, torch.Tensor]:
    """All tensors of a checked head, on the CPU, in the dtype they are stored in."""
    check_checkpoint(folder, config)
    tensors: dict[str, torch.Tensor] = {}
    for path in _weight_files(Path(folder)):
        tensors.update(load_file(path))
    return tensors


def load_draft_vocab(folder: str | Path, vocab_size: int) -> np.ndarray | None:
    """Ids the head drafts from, int64 ascending; None when it drafts from the whole vocabulary.

    Raises HeadError.
    """
    path = Path(folder) / DRAFT_VOCAB_FILE
    if not path.exists():
        return None
    if is_lfs_pointer(path):
        raise HeadError([lfs_pointer(path)], str(folder))
    try:
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _bad_vocab(path, f"not a plain NumPy array: {error}") from None
    if not isinstance(ids, np.ndarray):
        raise _bad_vocab(path, "must hold one array")
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        shape = list(ids.shape)
        raise _bad_vocab(path, f"must be a non-empty vector of integers, is {ids.dtype} {shape}")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise _bad_vocab(path, f"ids reach from {low} to {high}, allowed 0 to {vocab_size - 1}")
    ids = ids.astype(np.int64)
    if np.any(np.diff(ids) <= 0):
        raise _bad_vocab(path, "ids must be ascending and without duplicates")
    return ids


def is_lfs_pointer(path: Path) -> bool:
    """Whether Git has not fetched this file yet."""
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def _bad_vocab(path: Path, allowed: str) -> HeadError:
    return HeadError([Finding("draft_vocab", path.name, None, allowed, _EXPORT)], str(path.parent))


def _weight_files(folder: Path) -> list[Path]:
    files = sorted(folder.glob("*.safetensors"))
    if pointers := [path for path in files if is_lfs_pointer(path)]:
        raise HeadError([lfs_pointer(path) for path in pointers], str(folder))
    if files:
        return files
    pickled = sorted(
        path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern)
    )
    if pickled:
        allowed = "pickled weights are refused"
        found = [
            Finding("pickled", name, None, allowed, "convert it to safetensors") for name in pickled
        ]
    else:
        found = [Finding("no_weights", "*.safetensors", None, "no such file there")]
    raise HeadError(found, str(folder))


def _headers(folder: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    if name in found:
                        twice = Finding("tensor_twice", name, None, "is in two files", _EXPORT)
                        raise HeadError([twice], str(folder))
                    part = file.get_slice(name)
                    found[name] = (tuple(part.get_shape()), part.get_dtype())
        except (SafetensorError, OSError) as error:
            damaged = Finding(
                "damaged", path.name, None, f"truncated or damaged: {error}", "fetch the file again"
            )
            raise HeadError([damaged], str(folder)) from None
    return found
