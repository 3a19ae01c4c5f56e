"""The time to build a tree: plain Python, C++, and the tensor version on this device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from jetspec_sglang.bench.timing import Timing, measure
from jetspec_sglang.tree import build_tree
from jetspec_sglang.tree.reference import build_reference
from jetspec_sglang.tree.tensors import build_tensors

DEPTH, WIDTH = 15, 8
BATCHES, BUDGETS = (1, 4, 16), (16, 64, 256)
NOTE = f"best_first, D={DEPTH}, W={WIDTH}; microseconds: median (fastest-slowest)."


@dataclass(frozen=True, slots=True)
class Row:
    batch: int
    budget: int
    reference: Timing  # a heap in plain Python
    native: Timing  # C++ on the host
    device: Timing  # tensor operations, on the GPU where there is one


def candidates(batch: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Top-W of random logits that are about as peaked as a trained head's."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch, DEPTH, 1000, generator=generator)
    top = logits.log_softmax(-1).topk(WIDTH)
    return top.indices, top.values


def run(
    rule: str = "best_first",
    repeats: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Row]:
    gpu = torch.cuda.is_available()
    timed = partial(measure, repeats=repeats, clock=clock)
    for batch in BATCHES:
        host = candidates(batch)
        device = (host[0].cuda(), host[1].cuda()) if gpu else host
        for budget in BUDGETS:
            yield Row(
                batch,
                budget,
                timed(partial(build_reference, *host, budget, rule)),
                timed(partial(build_tree, *host, budget, rule)),
                timed(partial(_on_device, *device, budget, rule)),
            )


def _on_device(tokens: torch.Tensor, logprobs: torch.Tensor, budget: int, rule: str) -> None:
    build_tensors(tokens, logprobs, budget, rule)
    if tokens.is_cuda:
        torch.cuda.synchronize()


def table(*, cpu_time: bool = False) -> list[list[str]]:
    """Rows for `report.markdown`; `cpu_time` counts the CPU time of one thread."""
    if cpu_time:
        torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows = [["batch", "B", "plain Python", "C++", f"tensors on {where}", "Python / C++"]]
    for row in run(clock=time.thread_time if cpu_time else time.perf_counter):
        ratio = row.reference.median / row.native.median
        times = (str(row.reference), str(row.native), str(row.device))
        rows.append([str(row.batch), str(row.budget), *times, f"{ratio:.0f}"])
    return rows
