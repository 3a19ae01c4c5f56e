"""The checks of `jetspec doctor` on a target and a head, and on their memory.

Contract: returns `Check`s; fetches nothing. I/O: reads configs and tensor headers, asks the
system for free memory.
"""

import math
from pathlib import Path
from typing import Any

from jetspec_sglang.cli.checks import Check
from jetspec_sglang.cli.memory import Demand, Memory, estimate
from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.head.config import HeadConfig

PROCESS_BYTES = 3 << 30
"""Memory to leave for SGLang's processes and workspaces. Only a warning depends on it."""


def check_target(model: str | None) -> tuple[Check, Path | None]:
    """The target's folder, if it is on this disk; `model` None means the embedded one."""
    from jetspec_sglang import embedded

    folder = embedded.cached_path() if model is None else Path(model).expanduser()
    if (folder / "config.json").is_file():
        return Check("target", "ok", str(folder)), folder
    if model is None:
        remedy = "nothing to do: `jetspec serve` fetches it (about 85 MB)"
        return Check("target", "warn", "the embedded model is not in the cache yet", remedy), None
    if folder.exists() or model.startswith(("/", ".", "~")):
        return Check("target", "fail", f"{model}: has no config.json", "check the path"), None
    return Check("target", "warn", f"{model} is not on this disk", "SGLang will fetch it"), None


def check_head(
    head: str | None, target: Path | None, model: str | None = None
) -> tuple[Check, HeadConfig | None]:
    """The head's config, tensors and fit to the target. `head` None means there is none.

    `model`: the target as the user named it, None for the embedded one.
    """
    from jetspec_sglang.cli.serve import NO_EMBEDDED_HEAD, NO_HEAD

    if head is None and model is not None:
        return Check("head", "warn", f"none named for {model}", NO_HEAD), None
    if head is None:
        return Check("head", "fail", "none found", NO_EMBEDDED_HEAD), None
    from jetspec_sglang.head import check as draft

    report = draft.check_head(head, None if target is None else _target_config(target))
    remedy = "; ".join(dict.fromkeys(finding.remedy for finding in report.findings))
    told = "; ".join(str(finding) for finding in report.findings)
    if report.head is None:
        return Check("head", "fail", f"{head}: {told}", remedy, report.findings), None
    folder, config, drafted = report.head.folder, report.head.config, report.head.draft_vocab
    detail = (
        f"{folder}: {config.num_hidden_layers} layers, block {config.block_size}, "
        f"{'causal' if config.causal else 'bidirectional'}, "
        f"taps {','.join(map(str, config.target_layer_ids))}, drafts from "
        f"{config.vocab_size if drafted is None else len(drafted)} of {config.vocab_size} tokens"
    )
    if report.findings:
        return Check("head", "warn", f"{detail}; {told}", remedy, report.findings), config
    return Check("head", "ok", detail), config


def check_memory(target: Path, head: HeadConfig | None, load: Demand, free: int) -> Check:
    """Whether `load` fits in `free` bytes, with the sum's parts."""
    config = _target_config(target)
    parts = estimate(config, count_parameters(target), head, load)
    detail = f"{_gib(parts.total)} of {_gib(free)} GiB: {describe(parts)}"
    detail += f" (batch {load.batch}, B {load.budget}, {load.context} tokens a request)"
    if parts.total + PROCESS_BYTES > free:
        remedy = "lower --max-running-requests, --context-length or --speculative-num-draft-tokens"
        return Check("memory", "fail" if parts.total > free else "warn", detail, remedy)
    return Check("memory", "ok", detail)


def describe(parts: Memory) -> str:
    """The parts in GiB, largest purposes first as they are declared."""
    return ", ".join(
        f"{name} {_gib(size)}"
        for name, size in (
            ("weights", parts.weights),
            ("target KV", parts.target_kv),
            ("head KV", parts.head_kv),
            ("logits", parts.logits),
            ("taps", parts.taps),
        )
    )


def count_parameters(folder: Path) -> int:
    """Elements in a folder's *.safetensors files, from their headers. CommandError without any."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CommandError(f"{folder}: no *.safetensors file")
    total = 0
    for file in files:
        with safe_open(file, framework="np") as tensors:
            total += sum(math.prod(tensors.get_slice(n).get_shape()) for n in tensors.keys())  # noqa: SIM118
    return total


def free_memory(host: bool) -> int:
    """Bytes free on the device that serves."""
    if host:
        import psutil

        available: int = psutil.virtual_memory().available
        return available
    import torch

    return torch.cuda.mem_get_info()[0]


def _target_config(folder: Path) -> dict[str, Any]:
    from jetspec_sglang.cli.models import target_config

    return target_config(str(folder))


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f}"
