"""The dtype that the host platform serves in by default. Reads /proc/cpuinfo."""

from __future__ import annotations

from pathlib import Path

INSTRUCTION = "avx512_bf16"
"""VDPBF16PS, which the linear kernel uses; CPUs with AMX have it too."""


def default_dtype(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """bfloat16 if this CPU multiplies it, else float32.

    Both are lossless. bfloat16 reads half as much memory for the weights.
    """
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return "bfloat16" if INSTRUCTION in flags else "float32"
