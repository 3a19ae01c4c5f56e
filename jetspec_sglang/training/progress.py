"""Training metrics as JSON lines in `<run>/metrics.jsonl`, and optionally in TensorBoard."""

from __future__ import annotations

import json
import time
from typing import Any

from torch import Tensor

from jetspec_sglang.training.recipe import Recipe


class Progress:
    """Averages every `log_every` steps. A resumed run drops the lines after its checkpoint."""

    def __init__(self, settings: Recipe, step: int) -> None:
        self.settings = settings
        self.path = settings.run / "metrics.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = [line for line in self.path.read_text().splitlines() if _step(line) <= step]
            self.path.write_text("".join(line + "\n" for line in kept))
        self.board: Any = None
        if settings.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(settings.run / "tensorboard"), purge_step=step)
        self.summary = ""
        self._restart()

    def _restart(self) -> None:
        self.losses: list[float] = []
        self.rows: Tensor | None = None
        self.hits: Tensor | None = None
        self.start = time.monotonic()

    def add(
        self, step: int, loss: Tensor, rows: Tensor, hits: Tensor, norm: float, rate: float
    ) -> None:
        self.losses.append(float(loss))
        self.rows = rows if self.rows is None else self.rows + rows
        self.hits = hits if self.hits is None else self.hits + hits
        if step % self.settings.log_every and step != self.settings.steps:
            return
        seconds = (time.monotonic() - self.start) / len(self.losses)
        accuracy = [
            round(float(h / r), 4) if r else None for h, r in zip(self.hits, self.rows, strict=True)
        ]
        line = {
            "step": step,
            "loss": round(sum(self.losses) / len(self.losses), 5),
            "accuracy": accuracy,
            "gradient_norm": round(norm, 4),
            "learning_rate": rate,
            "anchors": int(self.rows[0]),
            "seconds_per_step": round(seconds, 3),
            "eta_seconds": round(seconds * (self.settings.steps - step)),
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self.board:
            for name in ("loss", "gradient_norm", "learning_rate"):
                self.board.add_scalar(name, line[name], step)
            for depth, value in enumerate(accuracy, 1):
                if value is not None:
                    self.board.add_scalar(f"accuracy/depth_{depth}", value, step)
        self.summary = f"loss {line['loss']:.3f}, depth-1 {accuracy[0]}"
        self._restart()

    def close(self) -> None:
        """Write the last events to the disk, because TensorBoard's writer keeps them for
        minutes."""
        if self.board:
            self.board.close()


def _step(line: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError):
        return 1 << 62
