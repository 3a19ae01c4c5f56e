"""The host's linear kernel against oneDNN's packed one and torch's plain one.

The linears of `LAYERS` decoder layers of SmolLM2's shape, one after another, so that their weights
come from memory and not from a cache, as they do in a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

from jetspec_sglang.bench.timing import measure
from jetspec_sglang.host.kernels import DTYPES, Dot, Packed, dots, linear, pack

SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))
"""[out, in] of a layer: QKV, output, gate and up, down projection."""
LAYERS = 12
ROWS = (1, 2, 4, 8, 16, 32, 64, 256)
NOTE = f"{LAYERS} layers of SmolLM2-135M; microseconds per layer: median (fastest-slowest)."


def table(*, cpu_time: bool = False, rows: tuple[int, ...] = ROWS) -> list[list[str]]:
    """Rows for `report.markdown`; `cpu_time` counts the CPU time of one thread."""
    if cpu_time:
        torch.set_num_threads(1)
    clock = time.thread_time if cpu_time else time.perf_counter
    printed = [["dtype", "rows", "kernel", "oneDNN, packed", "torch, unpacked", "oneDNN / kernel"]]
    kinds = [(dtype, dot) for dtype in DTYPES for dot in dots(dtype)]
    for dtype, dot in kinds:
        weights = [torch.randn(shape).to(dtype) for _ in range(LAYERS) for shape in SHAPES]
        own = [pack(weight) for weight in weights]
        onednn = [torch.ops.mkldnn._reorder_linear_weight.default(weight, 16) for weight in weights]
        for count in rows:
            x = inputs(weights, count)
            ways: list[Callable[[], object]] = [
                partial(run, x, own, dot),
                partial(_onednn, x, onednn),
                partial(_plain, x, weights),
            ]
            times = [measure(way, clock=clock).per(LAYERS) for way in ways]
            ratio = f"{times[1].median / times[0].median:.2f}"
            name = f"{str(dtype).removeprefix('torch.')}, {dot.name.lower()}"
            printed.append([name, str(count), *map(str, times), ratio])
    return printed


def inputs(weights: list[torch.Tensor], rows: int) -> list[torch.Tensor]:
    """The input [rows, in] of each weight; weights of one width share it."""
    by_width = {w.shape[1]: torch.randn(rows, w.shape[1]).to(w.dtype) for w in weights}
    return [by_width[weight.shape[1]] for weight in weights]


def run(x: list[torch.Tensor], packed: list[Packed], dot: Dot | None = None) -> None:
    """All layers once, by the kernel."""
    for rows, weight in zip(x, packed, strict=True):
        linear(rows, weight, dot=dot)


def _onednn(x: list[torch.Tensor], packed: list[torch.Tensor]) -> None:
    for rows, weight in zip(x, packed, strict=True):
        torch.ops.mkldnn._linear_pointwise.default(rows, weight, None, "none", [], "")


def _plain(x: list[torch.Tensor], weights: list[torch.Tensor]) -> None:
    for rows, weight in zip(x, weights, strict=True):
        F.linear(rows, weight)
