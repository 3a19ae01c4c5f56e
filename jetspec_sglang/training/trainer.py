"""`Trainer`: the training loop, its checkpoints and its metrics.

Contract: a step is a pure function of the settings, the data and the weights, so a resumed run
repeats the uninterrupted one, and several processes (Hugging Face accelerate: DDP or FSDP) repeat
one process with the same global batch. I/O: `<run>/checkpoint`, `<run>/metrics.jsonl`,
`<run>/tensorboard`, written by the main process alone.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor
from tqdm import tqdm

from jetspec_sglang.training.batches import Sampler, rows
from jetspec_sglang.training.features import FeatureSource
from jetspec_sglang.training.objective import Objective
from jetspec_sglang.training.progress import Progress
from jetspec_sglang.training.recipe import Recipe
from jetspec_sglang.training.schedule import learning_rate, make_optimizer


class Trainer:
    def __init__(
        self,
        settings: Recipe,
        accelerator: Accelerator,
        objective: Objective,
        sampler: Sampler,
        source: FeatureSource,
    ) -> None:
        self.settings, self.accelerator = settings, accelerator
        self.sampler, self.source = sampler, source
        self.objective = objective
        optimizer = make_optimizer(objective, settings)
        self.model, self.optimizer = accelerator.prepare(objective, optimizer)
        self.step = 0

    def train(self, after_checkpoint: Callable[[], None] = lambda: None) -> None:
        """Run to the last step, from the last checkpoint if there is one.

        Every process calls `after_checkpoint`: gathering a sharded model takes all of them.
        """
        self._resume()
        settings = self.settings
        main = self.accelerator.is_main_process
        metrics = Progress(settings, self.step) if main else None
        bar = tqdm(
            total=settings.steps, initial=self.step, desc="train", unit="step", disable=not main
        )
        while self.step < settings.steps:
            while settings.pause_file and settings.pause_file.exists():
                time.sleep(1)
            record = self._one_step()
            self.step += 1
            if metrics:
                metrics.add(self.step, *record)
                bar.set_postfix_str(metrics.summary)
            bar.update()
            if self.step % settings.checkpoint_every == 0 or self.step == settings.steps:
                self._checkpoint()
                after_checkpoint()
        bar.close()
        if metrics:
            metrics.close()

    def _one_step(self) -> tuple[Tensor, Tensor, Tensor, float, float]:
        """loss, rows and hits per depth of the global batch; gradient norm; learning rate."""
        settings, accelerator = self.settings, self.accelerator
        indices, batch = self.sampler.batch(self.step)
        divisor = self.objective.weight_sum(batch.to(accelerator.device))
        rate = learning_rate(self.step, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        starts = range(
            accelerator.process_index * settings.micro_sequences,
            len(indices),
            accelerator.num_processes * settings.micro_sequences,
        )
        sums: list[Tensor] = []
        for start in starts:
            part = slice(start, start + settings.micro_sequences)
            micro = rows(batch, part).to(accelerator.device)
            with accelerator.autocast():
                features = self.source.features(indices[part], micro.tokens)
            last = start == starts[-1]
            with torch.enable_grad(), nullcontext() if last else accelerator.no_sync(self.model):
                score = self.model(micro, features, divisor)
                # DDP averages gradients over processes; the global loss is their sum.
                accelerator.backward(score.loss * accelerator.num_processes)
            sums.append(torch.cat((score.loss.detach().float()[None], score.rows, score.hits)))
        norm = accelerator.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        total = accelerator.reduce(torch.stack(sums).sum(dim=0), reduction="sum").cpu()
        loss, counts = total[0], total[1:].chunk(2)
        return loss, counts[0], counts[1], float(norm), rate

    @property
    def _folder(self) -> Path:
        return self.settings.run / "checkpoint"

    def _checkpoint(self) -> None:
        """Write next to the old checkpoint, then replace it. After a kill at any time, one
        checkpoint is complete."""
        partial = self._folder.with_suffix(".partial")
        self.accelerator.save_state(str(partial))
        if self.accelerator.is_main_process:
            (partial / "progress.json").write_text(json.dumps({"step": self.step}))
            old = self._folder.with_suffix(".old")
            if self._folder.exists():
                shutil.rmtree(old, ignore_errors=True)  # left by a kill during an earlier swap
                os.replace(self._folder, old)
            os.replace(partial, self._folder)
            shutil.rmtree(old, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _resume(self) -> None:
        folder = self._folder
        old = folder.with_suffix(".old")
        if not folder.exists() and old.exists():
            folder = old
        if not folder.exists():
            return
        self.accelerator.load_state(str(folder))
        self.step = int(json.loads((folder / "progress.json").read_text())["step"])
