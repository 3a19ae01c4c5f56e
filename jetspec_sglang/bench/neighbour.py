"""The host's linear kernel while another process takes one of its cores.

The linears of `bench.linear`, first undisturbed, then with one thread, then with all threads beside
a process that never sleeps and is tied to the last core. I/O: that process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from jetspec_sglang.bench.linear import LAYERS, SHAPES, inputs, run
from jetspec_sglang.bench.timing import measure
from jetspec_sglang.host.kernels import pack, set_threads

ROWS = (1, 4, 8, 16, 32)
SECONDS = 0.4
"""Of a repeat: a scheduler's time slice is some milliseconds, so it must hold many."""
NOTE = (
    f"float32, {LAYERS} layers of SmolLM2-135M; microseconds per layer: median (fastest-slowest). "
    "Beside the neighbour half of one core is left."
)


def table() -> list[list[str]]:
    """Rows for `report.markdown`."""
    weights = [torch.randn(shape) for _ in range(LAYERS) for shape in SHAPES]
    packed = [pack(weight) for weight in weights]
    printed = [["rows", "all threads", "one thread", "all threads, busy core", "speed kept"]]
    for rows in ROWS:
        call = partial(run, inputs(weights, rows), packed)
        together = measure(call, seconds=SECONDS).per(LAYERS)
        set_threads(1)
        alone = measure(call, seconds=SECONDS).per(LAYERS)
        set_threads(None)
        with busy_core():
            disturbed = measure(call, seconds=SECONDS).per(LAYERS)
        kept = f"{together.median / disturbed.median:.0%}"
        printed.append([str(rows), *map(str, (together, alone, disturbed)), kept])
    return printed


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that takes the last of this process's cores as long as the block runs."""
    core = max(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        child.kill()
        child.wait()
