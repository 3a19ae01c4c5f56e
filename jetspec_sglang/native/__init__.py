"""The host's compiled kernels: trees, accept walk, attention. See `library` and `attention`."""

from jetspec_sglang.native.attention import MaskMode, attention
from jetspec_sglang.native.library import load

__all__ = ["MaskMode", "attention", "load"]
