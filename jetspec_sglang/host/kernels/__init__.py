"""The host's compiled kernels: trees, accept walk, attention, linears.

Contract: functions on CPU tensors that check shapes and dtypes. The C++ sources are in this
folder; the first call compiles them into the cache folder.
"""

from jetspec_sglang.host.kernels.attention import MaskMode, attention
from jetspec_sglang.host.kernels.library import load, set_threads, threads
from jetspec_sglang.host.kernels.linear import DTYPES, Dot, Packed, dots, linear, pack

__all__ = [
    "DTYPES",
    "Dot",
    "MaskMode",
    "Packed",
    "attention",
    "dots",
    "linear",
    "load",
    "pack",
    "set_threads",
    "threads",
]
