"""`calibrate`: seconds of a round by rows, measured once at start-up on dummy requests.

Seeds the round-cost curve, so that a controller knows what a budget costs before the first request.
Every row reads and writes the padding slot of the KV pools, which no request owns. The time is
bounded. Sizes that do not fit into it stay unknown until requests use them.
"""

from __future__ import annotations

import logging
import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from jetspec_sglang import bridge
from jetspec_sglang.bridge.inputs import TreeVerifyInput
from jetspec_sglang.tree import build_tree

if TYPE_CHECKING:
    from sglang.srt.managers.tp_worker import TpModelWorker

    from jetspec_sglang.budget import TreeBudget
    from jetspec_sglang.round.cost import RoundCost
    from jetspec_sglang.round.engine import Engine

logger = logging.getLogger(__name__)
REPEATS = 3
LARGEST_ROWS = 256


class Rounds(Protocol):
    """What runs rounds (the worker)."""

    engine: Engine
    budgets: TreeBudget
    costs: RoundCost

    @property
    def target_worker(self) -> TpModelWorker: ...

    def window_width(self, budget: int) -> int: ...

    def nodes(self, budget: int) -> int: ...

    def candidates(
        self, batch: Any, anchors: torch.Tensor, budget: int, plan: Any
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


def calibrate(worker: Rounds, seconds: float) -> None:
    """Seed `worker.costs` with powers of two of rows, smallest first, within `seconds`."""
    deadline = time.monotonic() + seconds
    rows = 1
    while rows <= LARGEST_ROWS and time.monotonic() < deadline:
        budget = min(rows, worker.budgets.max_budget)
        samples: list[float] = []
        # The first pass of a shape pays for what the device prepares once.
        while len(samples) <= REPEATS and (time.monotonic() < deadline or not samples):
            samples.append(_dummy_round(worker, rows // budget, budget))
        worker.costs.seed(rows, statistics.median(samples[1:] or samples))
        rows *= 2
    logger.info(
        "round cost: %s",
        ", ".join(f"{r} rows {1e3 * s:.1f} ms" for r, s in worker.costs.seconds.items()),
    )


def _dummy_round(worker: Rounds, requests: int, budget: int) -> float:
    """Seconds of draft, tree and verify for `requests` empty requests."""
    engine = worker.engine
    device = engine.draft.runner.device
    batch = SimpleNamespace(
        req_pool_indices=torch.zeros(requests, dtype=torch.int64, device=device),
        seq_lens=torch.zeros(requests, dtype=torch.int64, device=device),
        seq_lens_cpu=torch.zeros(requests, dtype=torch.int64),
        seq_lens_sum=0,
        can_run_decode_cuda_graph=False,
        reqs=[],
    )
    started = time.perf_counter()
    with torch.inference_mode():
        window = torch.zeros(
            (requests, worker.window_width(budget)), dtype=torch.int64, device=device
        )
        plan = bridge.plan_window(worker.target_worker, batch, window)
        anchors = torch.zeros(requests, dtype=torch.int64, device=device)
        candidates = worker.candidates(batch, anchors, budget, plan)
        tree = build_tree(*candidates, worker.nodes(budget), engine.settings.rule)
        positions = (batch.seq_lens[:, None] + tree.depths).reshape(-1)
        mask = engine.ops.mask(batch, tree)
        verify = TreeVerifyInput.of(tree.tokens, tree.parents, positions, mask)
        logits = bridge.verify_dummy(worker.target_worker, batch, verify, plan)
        torch.argmax(logits, dim=-1).cpu()
    return time.perf_counter() - started
