"""`Recipe`: all settings of a training run, checked before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jetspec_sglang.training.loss_names import Loss

Positive = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]


class Recipe(BaseModel):
    """One run. Counts are global: a step's sequences are shared out over the processes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    target: Path
    """Folder or hub id of the target in Hugging Face's format."""
    data: Annotated[tuple[Path, ...], Field(min_length=1)]
    """Shards, or folders of shards, that `jetspec data` wrote."""
    run: Path
    """Folder of this run; the same command continues it after a kill."""
    held_out: tuple[Path, ...] = ()
    """Shards of evaluation answers: training refuses data that holds one of their prompts."""
    start_from: Path | None = None
    """A head folder whose weights training starts from, instead of the target's own layers."""

    num_layers: Positive = 5
    """Layers of the head."""
    block_size: Annotated[int, Field(ge=2)] = 16
    """Rows of a block: the anchor and block_size - 1 masked places."""
    target_layer_ids: tuple[int, ...] | None = None
    """Blocks of the target whose outputs the head reads. Default: five, evenly spread."""
    mask_token_id: Natural
    """Id that fills the masked places; one that ordinary text does not contain."""
    causal: bool = True
    """Rows of a block see earlier rows only (JetSpec) or all rows (DFlash)."""
    draft_vocab_size: Natural = 0
    """Ids the head drafts from: the most frequent of the data. 0 = the target's whole vocabulary."""

    steps: Positive
    """Optimiser steps."""
    sequences: Positive = 16
    """Sequences of one step, over all processes."""
    micro_sequences: Positive = 2
    """Sequences of one forward and backward pass of one process."""
    anchors: Positive = 64
    """Anchors drawn from each sequence, at most."""
    short_block_size: Natural = 0
    """With a causal head, some steps may train a shorter block, which costs less. 0 = none do."""
    short_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the steps with the short block."""

    real_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the anchors whose block starts with real tokens instead of masks, 1 to D - 1 of
    them. A second pass over a tree needs this (`jetspec bench conditioning`)."""

    loss: Loss = "forward_kl"
    """forward_kl, reverse_kl or sft."""
    sft_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Weight of the sft loss mixed into a KL loss, which keeps the rest."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """T of the KL losses, for student and teacher alike."""
    gamma: Annotated[float, Field(ge=0)] = 0.0
    """Weight of depth k is exp(-(k - 1) / gamma); 0 weighs all depths alike."""
    logits_chunk: Positive = 256
    """Rows whose logits exist at a time."""

    learning_rate: Annotated[float, Field(gt=0)] = 3e-4
    """Peak learning rate."""
    warmup_steps: Natural = 100
    """Steps of linear warm-up."""
    min_lr_share: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Share of the peak that the cosine ends at."""
    beta2: Annotated[float, Field(gt=0, lt=1)] = 0.98
    """AdamW's second beta."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's decay of the matrices."""
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm."""
    seed: Natural = 0
    """Seed of the data order and the anchors."""

    precision: Literal["bf16", "fp32"] = "bf16"
    """bf16 runs matmuls in bfloat16, weights stay float32."""
    gradient_checkpointing: bool = False
    """Recompute each layer in the backward pass, to save memory."""
    feature_cache: Path | None = None
    """Folder for recorded features; without it every step runs the target."""
    threads: Natural = 0
    """CPU threads of each process; 0 leaves torch's own choice."""

    log_every: Positive = 10
    """Steps a metrics line averages."""
    checkpoint_every: Positive = 200
    """Steps between checkpoints, each with an exported head."""
    tensorboard: bool = False
    """Write TensorBoard events too."""
    pause_file: Path | None = None
    """Training sleeps while this file exists, so that another program can use the machine."""

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        if self.short_block_size:
            if not self.causal:
                raise ValueError("short_block_size: only a causal head's block can be cut short")
            if not 2 <= self.short_block_size < self.block_size:
                raise ValueError(
                    f"short_block_size = {self.short_block_size}: must be 2 to block_size - 1 = "
                    f"{self.block_size - 1}"
                )
        if self.real_share and not self.causal:
            raise ValueError(
                "real_share: only a causal head's rows see just the tokens before them"
            )
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps = {self.warmup_steps}: must be below steps = {self.steps}"
            )
        return self

    @property
    def loss_parts(self) -> dict[Loss, float]:
        if self.loss == "sft" or self.sft_share == 0:
            return {self.loss: 1.0}
        return {self.loss: 1.0 - self.sft_share, "sft": self.sft_share}
