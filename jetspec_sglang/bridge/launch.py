"""How the server was started: SGLang's settings, and the targets and flags that are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.server_args import ServerArgs


@dataclass(frozen=True, slots=True)
class Speculation:
    """SGLang's flags of a JETSPEC server, by our names."""

    head: str
    width: int
    max_budget: int


def speculation() -> Speculation:
    """What this scheduler was started with. Only once SGLang has published its settings."""
    from sglang.srt.runtime_context import get_spec

    spec = get_spec()
    return Speculation(
        head=spec.speculative_draft_model_path,
        width=int(spec.speculative_eagle_topk),
        max_budget=int(spec.speculative_num_draft_tokens),
    )


def runs_jetspec() -> bool:
    """Whether this scheduler serves with JETSPEC. Only once SGLang has published its settings."""
    from sglang.srt.runtime_context import get_spec

    return get_spec().speculative_algorithm == "JETSPEC"


def target_config(server_args: ServerArgs) -> ModelConfig:
    """SGLang's reading of the target's config.json, before anything is loaded."""
    from sglang.srt.arg_groups.model_override_base import model_config_of

    return model_config_of(server_args)


def refuse_layers_with_state(config: ModelConfig) -> None:
    """ValueError for a target whose layers keep something else than keys and values."""
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.model_config import AttentionArch

    name = (config.hf_config.architectures or ["this target"])[0]
    if config.attention_arch == AttentionArch.SSM or mambaish_config(config) is not None:
        raise ValueError(
            f"--model-path: {name} has state-space or linear-attention layers; JETSPEC and the "
            "host platform serve targets with full attention (MHA or GQA) in every layer"
        )
    if config.attention_arch != AttentionArch.MHA:
        raise ValueError(
            f"--model-path: {name} has {config.attention_arch.name} layers; JETSPEC and the host "
            "platform serve targets with full attention (MHA or GQA) in every layer"
        )


def refuse_tokenizer_workers(server_args: ServerArgs) -> None:
    """ValueError for tokenizer processes in which SGLang loads no plugins."""
    workers = server_args.tokenizer_worker_num
    if workers not in (None, 1):
        raise ValueError(
            f"--tokenizer-worker-num {workers}: JETSPEC and the host platform allow 1; SGLang "
            "loads no plugins in more workers, so invalid requests would reach the scheduler "
            "unchecked"
        )
