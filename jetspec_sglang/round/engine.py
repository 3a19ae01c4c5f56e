"""`Engine`: the objects that a worker keeps for its whole life, built and checked once.

`build_engine` reads the head's folder and loads it through SGLang. It refuses, with one line, what
would be slow, wrong or crash later: a head made for another target, missing tensors, contradictory
causal flags, a target without taps.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from sglang.srt.runtime_context import get_schedule

from jetspec_sglang import __version__, bridge
from jetspec_sglang.budget import TreeBudget
from jetspec_sglang.device import DeviceOps, device_ops
from jetspec_sglang.head.check import check_head
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.round.drafter import Drafter
from jetspec_sglang.round.scoring import Scorer
from jetspec_sglang.settings import Settings

if TYPE_CHECKING:
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.server_args import ServerArgs


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of a running JETSPEC."""

    settings: Settings
    config: HeadConfig
    ops: DeviceOps
    draft: bridge.DraftRunner
    drafter: Drafter
    budgets: TreeBudget
    width: int
    info: dict[str, str]


def build_engine(
    server_args: ServerArgs, gpu_id: int, nccl_port: int, target_worker: TpModelWorker
) -> Engine:
    """Load and check the head. Raises ValueError or RuntimeError with one clear line."""
    bridge.require_checked_version()
    settings = Settings.from_environment()
    target = target_worker.model_runner
    _check_target(target)
    launched = bridge.speculation()
    head = check_head(launched.head, target.model_config.hf_text_config).require()
    config = head.config

    ops = device_ops(target_worker.device)
    draft = bridge.build_draft_runner(
        server_args=server_args,
        gpu_id=gpu_id,
        nccl_port=nccl_port,
        target_worker=target_worker,
        attention_backend=ops.attention_backend,
        causal=config.causal,
    )
    scorer = Scorer(
        target.model.lm_head,
        launched.width,
        None
        if head.draft_vocab is None
        else torch.from_numpy(head.draft_vocab).to(target_worker.device),
        ops.linear,
    )
    drafter = Drafter(draft, config, scorer, settings.draft_trace)
    budgets = TreeBudget.from_settings(settings, ops.name, launched.max_budget)
    return Engine(
        settings=settings,
        config=config,
        ops=ops,
        draft=draft,
        drafter=drafter,
        budgets=budgets,
        width=launched.width,
        info=_info(head.folder, config, settings, budgets, launched.width),
    )


def _check_target(target: ModelRunner) -> None:
    if get_schedule().page_size != 1:
        raise ValueError(f"--page-size {get_schedule().page_size}: JETSPEC allows 1")
    if not hasattr(target.model, "set_dflash_layers_to_capture"):
        raise ValueError(
            f"{type(target.model).__name__} cannot provide taps to a draft head "
            "(it has no set_dflash_layers_to_capture); JETSPEC cannot serve this target"
        )
    if not hasattr(target.model, "lm_head"):
        raise ValueError(f"{type(target.model).__name__} has no lm_head, which drafting needs")
    if target.model_config.is_multimodal:
        raise ValueError("JETSPEC serves text-only targets; this one is multimodal")
    bridge.refuse_layers_with_state(target.model_config)
    if target.sliding_window_size is not None and target.sliding_window_size > 0:
        raise ValueError("JETSPEC serves targets with full attention; this one has a window")


def _info(
    folder: Path, config: HeadConfig, settings: Settings, budgets: TreeBudget, width: int
) -> dict[str, str]:
    """Labels of `jetspec_info`."""
    return {
        "version": __version__,
        "sglang": bridge.CHECKED_VERSION,
        "head": folder.name,
        "causal": str(config.causal).lower(),
        "rule": settings.rule,
        "tiers": ",".join(map(str, budgets.tiers)),
        "width": str(width),
        "block_size": str(config.block_size),
    }
