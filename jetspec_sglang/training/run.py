"""`train(settings)`: assemble a run from its settings, train it, and export the head.

Contract: the only place that loads the target and the data for training. Results lie in the run
folder: `settings.json`, `metrics.jsonl`, `checkpoint/`, and `head/` after every checkpoint. A run
folder continues only under the settings it was started with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tqdm import tqdm

from jetspec_sglang.head.checkpoint import load_draft_vocab, load_tensors
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.model import HeadModel
from jetspec_sglang.training.batches import Sampler
from jetspec_sglang.training.export import export_head
from jetspec_sglang.training.features import (
    FeatureCache,
    FeatureSource,
    JoinedCaches,
    LiveFeatures,
    pad,
)
from jetspec_sglang.training.objective import Objective
from jetspec_sglang.training.recipe import Recipe
from jetspec_sglang.training.responses import Responses, join, load, shards
from jetspec_sglang.training.start import feature_scale, head_config, start_from_target
from jetspec_sglang.training.target import Recorder, load_target, matrices
from jetspec_sglang.training.trainer import Trainer
from jetspec_sglang.training.vocab import choose_draft_vocab

_CHANGEABLE = {"steps", "threads", "log_every", "checkpoint_every", "pause_file", "tensorboard"}
_SCALE_SEQUENCES = 32


def train(settings: Recipe) -> Path:
    """Run to the end and return the exported head's folder."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    accelerator = Accelerator(mixed_precision="bf16" if settings.precision == "bf16" else "no")
    check_shares(settings, accelerator.num_processes)
    if accelerator.is_main_process:
        remember(settings)
    set_seed(settings.seed)
    parts = [load(file) for path in settings.data for file in shards(path)]
    responses = join(parts)
    refuse_held_out(responses, settings.held_out)

    half = settings.precision == "bf16" and accelerator.device.type != "cpu"
    target = load_target(settings.target, torch.bfloat16 if half else torch.float32)
    config, vocab = _head_shape(settings, target.config, responses)
    target.to(accelerator.device)
    recorder = Recorder(target, config.target_layer_ids)
    source = _source(settings, accelerator, parts, recorder, config)
    embed, lm_head = matrices(target)
    ids = None if vocab is None else torch.from_numpy(vocab).to(accelerator.device)
    head = HeadModel(config, embed, lm_head, ids).to(accelerator.device)
    head.checkpoint_layers = settings.gradient_checkpointing
    taps = _sample_taps(responses, source, accelerator)
    scale = feature_scale(taps)
    if settings.start_from is None:
        start_from_target(head, target, taps, scale)
    else:
        head.load_state_dict(load_tensors(settings.start_from, config))
        head.fc.weight.data.mul_(scale)
    if settings.precision == "bf16":
        head.lm_head = head.lm_head.to(torch.bfloat16)

    objective = Objective(
        head,
        scale,
        settings.loss_parts,
        temperature=settings.temperature,
        gamma=settings.gamma,
        chunk=settings.logits_chunk,
    )
    short = settings.short_block_size - 1 if settings.short_block_size else 0
    sampler = Sampler(
        responses,
        settings.sequences,
        settings.anchors,
        config.depths,
        settings.seed,
        short,
        settings.short_share,
        settings.real_share,
    )
    trainer = Trainer(settings, accelerator, objective, sampler, source)
    folder = settings.run / "head"

    def export() -> None:
        state = accelerator.get_state_dict(trainer.model)
        if not accelerator.is_main_process:
            return
        tensors = {k.removeprefix("head."): v for k, v in state.items() if k.startswith("head.")}
        export_head(folder, config, tensors, feature_scale=state["scale"], draft_vocab=vocab)

    trainer.train(export)
    return folder


def check_shares(settings: Recipe, processes: int) -> None:
    share = settings.micro_sequences * processes
    if settings.sequences % share:
        raise ValueError(
            f"sequences = {settings.sequences}: must be a multiple of micro_sequences x processes "
            f"= {settings.micro_sequences} x {processes}"
        )


def remember(settings: Recipe) -> None:
    """Write settings.json, or refuse to continue a run whose settings were others."""
    file = settings.run / "settings.json"
    if file.exists():
        before = Recipe.model_validate_json(file.read_text())
        changed = [
            f"{name} was {getattr(before, name)!r}, is {value!r}"
            for name, value in settings
            if name not in _CHANGEABLE and getattr(before, name) != value
        ]
        if changed:
            raise ValueError(
                f"{settings.run} holds a run with other settings: " + "; ".join(changed)
            )
    settings.run.mkdir(parents=True, exist_ok=True)
    file.write_text(settings.model_dump_json(indent=2) + "\n")


def refuse_held_out(responses: Responses, held_out: tuple[Path, ...]) -> None:
    """ValueError when a prompt of a held-out shard is among the training data."""
    prompts = {responses.prompt(i).tobytes() for i in range(len(responses))}
    for path in held_out:
        shard = load(path)
        same = [i for i in range(len(shard)) if shard.prompt(i).tobytes() in prompts]
        if same:
            raise ValueError(
                f"{path}: {len(same)} of its {len(shard)} prompts are in the training data, "
                f"the first is sequence {same[0]}"
            )


def _head_shape(
    settings: Recipe, target_config: Any, responses: Responses
) -> tuple[HeadConfig, np.ndarray | None]:
    """The head's config, and its draft vocabulary: chosen from the data, or of the first head."""
    if settings.start_from is not None:
        config = HeadConfig.from_folder(settings.start_from)
        config.check_against_target(target_config)
    else:
        config = head_config(
            target_config,
            num_layers=settings.num_layers,
            block_size=settings.block_size,
            mask_token_id=settings.mask_token_id,
            target_layer_ids=settings.target_layer_ids,
            causal=settings.causal,
        )
    if settings.draft_vocab_size:
        size = settings.draft_vocab_size
        return config, choose_draft_vocab(responses, config.vocab_size, size)
    if settings.start_from is not None:
        return config, load_draft_vocab(settings.start_from, config.vocab_size)
    return config, None


def _source(
    settings: Recipe,
    accelerator: Accelerator,
    parts: list[Responses],
    recorder: Recorder,
    config: HeadConfig,
) -> FeatureSource:
    if settings.feature_cache is None:
        return LiveFeatures(recorder)
    width = config.num_taps * config.hidden_size
    caches = []
    with accelerator.main_process_first(), accelerator.autocast():
        for part in parts:
            folder = settings.feature_cache / part.digest()[:16]
            cache = FeatureCache(folder, part, width, config.hidden_size)
            with tqdm(total=len(part.ids), desc=f"features {folder.name}", unit="tok") as bar:
                cache.build(recorder, progress=bar.update)
            caches.append(cache)
    return JoinedCaches(caches)


def _sample_taps(
    responses: Responses, source: FeatureSource, accelerator: Accelerator
) -> torch.Tensor:
    """Taps of some answers' tokens [R, T*H]; the first tokens, attention sinks, are left out."""
    count = min(_SCALE_SEQUENCES, len(responses))
    indices = np.linspace(0, len(responses) - 1, count).astype(np.int64)
    found = []
    with torch.no_grad(), accelerator.autocast():
        for index in indices:
            tokens = pad([responses.sequence(index)]).to(accelerator.device)
            features = source.features(np.array([index]), tokens)
            found.append(features.taps[0, responses.response_start[index] :].float())
    return torch.cat(found)
