"""The host's compiled kernels: trees, accept walk, attention, linears. See the modules."""

from jetspec_sglang.native.attention import MaskMode, attention
from jetspec_sglang.native.library import load, set_threads, threads
from jetspec_sglang.native.linear import linear, pack

__all__ = ["MaskMode", "attention", "linear", "load", "pack", "set_threads", "threads"]
