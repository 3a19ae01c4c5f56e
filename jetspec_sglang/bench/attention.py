"""The host's attention kernel against torch's scaled_dot_product_attention.

One request with SmolLM2's shape (9 query heads, 3 KV heads, dimension 64), a tree of `rows` nodes
after `prefix` cached tokens in scattered slots. SDPA gets the tree as an additive mask. Its K/V
must first be gathered from the pool, so it is timed with and without the gather.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from jetspec_sglang.bench.timing import Timing, measure
from jetspec_sglang.host.kernels import MaskMode, attention

HEADS, KV_HEADS, DIM = 9, 3, 64
ROWS, PREFIXES = (1, 16, 64), (128, 512, 2048)
FANOUT = 2
NOTE = (
    f"{HEADS} query heads, {KV_HEADS} KV heads, dimension {DIM}; microseconds: median "
    "(fastest-slowest)."
)


@dataclass(frozen=True, slots=True)
class Row:
    dtype: torch.dtype
    rows: int
    prefix: int
    kernel: Timing
    gather_and_sdpa: Timing
    sdpa: Timing


def run(repeats: int = 7, clock: Callable[[], float] = time.perf_counter) -> Iterator[Row]:
    for dtype in (torch.float32, torch.bfloat16):
        for rows in ROWS:
            for prefix in PREFIXES:
                yield case(rows, prefix, dtype, partial(measure, repeats=repeats, clock=clock))


def case(rows: int, prefix: int, dtype: torch.dtype, timed: Callable[..., Timing]) -> Row:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    keys = prefix + rows
    q, k_pool = normal(rows, HEADS, DIM), normal(2 * keys, KV_HEADS, DIM)
    v_pool = normal(2 * keys, KV_HEADS, DIM)
    out = torch.empty_like(q)
    req_to_token = torch.randperm(2 * keys, generator=generator)[None, :keys].int()
    parents = torch.tensor([-1, *((row - 1) // FANOUT for row in range(1, rows))])
    request, prefix_lens = torch.tensor([0]), torch.tensor([prefix])
    row_starts = torch.tensor([0, rows])

    def kernel() -> None:
        attention(
            q, k_pool, v_pool, out, req_to_token, request, prefix_lens, row_starts, parents,
            MaskMode.TREE, DIM**-0.5,
        )  # fmt: skip

    mask = torch.zeros(rows, keys, dtype=torch.bool)
    mask[:, :prefix] = True
    for row in range(rows):
        seen = row
        while seen >= 0:
            mask[row, prefix + seen] = True
            seen = int(parents[seen])
    bias = torch.zeros(rows, keys, dtype=dtype).masked_fill(~mask, -torch.inf)
    slots = req_to_token[0].long()

    def sdpa(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        query = q.transpose(0, 1)[None]
        return scaled_dot_product_attention(query, keys, values, attn_mask=bias, enable_gqa=True)

    def gather(pool: torch.Tensor) -> torch.Tensor:
        return pool[slots].transpose(0, 1)[None]

    gathered = gather(k_pool).contiguous(), gather(v_pool).contiguous()
    return Row(
        dtype,
        rows,
        prefix,
        timed(kernel),
        timed(lambda: sdpa(gather(k_pool), gather(v_pool))),
        timed(lambda: sdpa(*gathered)),
    )


def table(*, cpu_time: bool = False) -> list[list[str]]:
    """Rows for `report.markdown`; `cpu_time` counts the CPU time of one thread."""
    if cpu_time:
        torch.set_num_threads(1)
    header = ["type", "rows", "prefix", "kernel", "gather + SDPA", "SDPA alone"]
    rows = [[*header, "gather + SDPA / kernel"]]
    for row in run(clock=time.thread_time if cpu_time else time.perf_counter):
        ratio = row.gather_and_sdpa.median / row.kernel.median
        name = str(row.dtype).removeprefix("torch.")
        times = (str(row.kernel), str(row.gather_and_sdpa), str(row.sdpa))
        rows.append([name, str(row.rows), str(row.prefix), *times, f"{ratio:.1f}"])
    return rows
