"""The compiled library as plain functions on CPU tensors.

Callers have checked shapes and dtypes; here tensors only become pointers. The library gets a tensor
itself, never an address. So the call holds the tensor, or its converted copy, until the kernel is
done. The first call of any function compiles the library (file I/O, see `build`). The library has a
pool of threads of its own, whose size is torch's number of threads until `set_threads` names
another.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

from jetspec_sglang.host.kernels.build import library_path


class Pointer:
    """Argument type of the kernels: a tensor's memory, or NULL for None."""

    @classmethod
    def from_param(cls, tensor: torch.Tensor | None) -> ctypes.c_void_p:
        if tensor is None:
            return ctypes.c_void_p(None)
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{type(tensor).__name__} given to a kernel: it must be a tensor")
        if tensor.device.type != "cpu":
            raise TypeError(f"a tensor on {tensor.device} given to a kernel: it must be on the CPU")
        return ctypes.c_void_p(tensor.data_ptr())


_POINTER: Any = Pointer
_INT: Any = ctypes.c_int
_LONG: Any = ctypes.c_int64
_FLOAT: Any = ctypes.c_float
_MOST_THREADS = 256


@cache
def load() -> ctypes.CDLL:
    """Compile if need be and load the library; `BuildError` where there is no compiler."""
    library = ctypes.CDLL(str(library_path()))
    library.jetspec_build_tree.argtypes = [_POINTER] * 2 + [_LONG] * 4 + [_INT] + [_POINTER] * 5
    library.jetspec_build_tree.restype = _INT
    library.jetspec_accept.argtypes = [_POINTER] * 4 + [_LONG] * 3 + [_POINTER] * 4
    library.jetspec_accept.restype = None
    library.jetspec_child_links.argtypes = [_POINTER] * 2 + [_LONG] * 2 + [_POINTER] * 2
    library.jetspec_child_links.restype = None
    library.jetspec_attention.argtypes = (
        ([_POINTER, _LONG] * 2 + [_INT]) * 2
        + [_POINTER, _LONG]
        + [_POINTER] * 4
        + [_LONG] * 6
        + [_INT, _FLOAT, _FLOAT, _INT]
    )
    library.jetspec_attention.restype = _INT
    library.jetspec_rms_norm.argtypes = (
        [_POINTER, _LONG] * 2 + [_POINTER] * 3 + [_LONG] * 2 + [_FLOAT, _INT]
    )
    library.jetspec_rms_norm.restype = None
    library.jetspec_silu_and_mul.argtypes = [_POINTER, _LONG, _POINTER, _LONG, _LONG, _INT]
    library.jetspec_silu_and_mul.restype = None
    library.jetspec_rotate.argtypes = (
        [_POINTER] + [_LONG] * 3 + [_POINTER, _LONG, _LONG, _POINTER, _LONG, _INT]
    )
    library.jetspec_rotate.restype = _INT
    library.jetspec_threads.argtypes = []
    library.jetspec_threads.restype = _INT
    library.jetspec_set_threads.argtypes = [_INT]
    library.jetspec_set_threads.restype = None
    library.jetspec_linear_panel.argtypes = []
    library.jetspec_linear_panel.restype = _LONG
    library.jetspec_linear_has.argtypes = [_INT]
    library.jetspec_linear_has.restype = _INT
    library.jetspec_linear_pack.argtypes = [_POINTER] + [_LONG] * 2 + [_POINTER, _INT]
    library.jetspec_linear_pack.restype = None
    library.jetspec_linear.argtypes = (
        [_POINTER] + [_LONG] * 3 + [_POINTER, _LONG] + [_POINTER] * 2 + [_INT]
    )
    library.jetspec_linear.restype = None
    library.jetspec_decoder_new.argtypes = (
        [_LONG] * 5 + [_POINTER] + [_LONG] * 2 + [_POINTER] + [_FLOAT] * 4 + [_INT] * 2
    )
    library.jetspec_decoder_new.restype = ctypes.c_void_p
    library.jetspec_decoder_free.argtypes = [ctypes.c_void_p]
    library.jetspec_decoder_free.restype = None
    library.jetspec_decoder_layer.argtypes = [ctypes.c_void_p] + [_POINTER] * 14
    library.jetspec_decoder_layer.restype = None
    library.jetspec_decoder_context.argtypes = (
        [ctypes.c_void_p] + [_POINTER] * 2 + [_LONG, _POINTER]
    )
    library.jetspec_decoder_context.restype = None
    library.jetspec_decoder_feed.argtypes = (
        [ctypes.c_void_p, _POINTER] + [_LONG] * 2 + [_POINTER] * 2
    )
    library.jetspec_decoder_feed.restype = _INT
    library.jetspec_decoder_pool.argtypes = [ctypes.c_void_p, _LONG] + [_POINTER] * 2
    library.jetspec_decoder_pool.restype = None
    library.jetspec_decoder_forward.argtypes = (
        [ctypes.c_void_p, _POINTER, _LONG]
        + [_POINTER] * 3
        + [_LONG]
        + [_POINTER] * 4
        + [_LONG, _INT, _POINTER, _LONG]
        + [_POINTER] * 2
    )
    library.jetspec_decoder_forward.restype = _INT
    return library


def threads() -> int:
    """Threads that a kernel call is shared among, the caller counted."""
    return load().jetspec_threads()


def set_threads(count: int | None) -> None:
    """Share kernel calls among `count` threads (1 to 256), or as many as torch uses (None).

    Raises:
        ValueError: on a count outside 1 to 256.
    """
    if count is not None and not 1 <= count <= _MOST_THREADS:
        raise ValueError(f"threads {count}: must be from 1 to {_MOST_THREADS}")
    load().jetspec_set_threads(count or 0)


def dense_rows(x: torch.Tensor) -> torch.Tensor:
    """x with the values of a row side by side, as every kernel reads them; a copy if need be."""
    return x if x.stride(-1) == 1 else x.contiguous()


def build_tree(
    topk_tokens: torch.Tensor, topk_logprobs: torch.Tensor, budget: int, rule: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """tokens, parents, depths, scores, sizes of `tree.Tree`; None when a log-probability is
    NaN, +inf or does not descend. `rule` is the index in `tree.RULES`."""
    topk_tokens, topk_logprobs = topk_tokens.contiguous(), topk_logprobs.contiguous()
    bs, depths, width = topk_tokens.shape
    tokens, parents, node_depths = torch.empty(3, bs, budget, dtype=torch.int64).unbind()
    scores = torch.empty(bs, budget)
    sizes = torch.empty(bs, dtype=torch.int64)
    refused = load().jetspec_build_tree(
        topk_tokens, topk_logprobs, bs, depths, width, budget, rule,
        tokens, parents, node_depths, scores, sizes,
    )  # fmt: skip
    return None if refused else (tokens, parents, node_depths, scores, sizes)


def accept(
    tokens: torch.Tensor,
    parents: torch.Tensor,
    sizes: torch.Tensor,
    target_tokens: torch.Tensor,
    depth_limit: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """path, lens, tokens, bonus of `verify.Accepted`."""
    tokens, parents, sizes = tokens.contiguous(), parents.contiguous(), sizes.contiguous()
    target_tokens = target_tokens.contiguous()
    bs, budget = tokens.shape
    path, committed = torch.empty(2, bs, depth_limit + 1, dtype=torch.int64).unbind()
    lens = torch.empty(bs, dtype=torch.int32)
    bonus = torch.empty(bs, dtype=torch.int64)
    load().jetspec_accept(
        tokens, parents, sizes, target_tokens,
        bs, budget, depth_limit,
        path, lens, committed, bonus,
    )  # fmt: skip
    return path, lens, committed, bonus


def child_links(parents: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """next_token, next_sibling of `verify.child_links`."""
    parents, sizes = parents.contiguous(), sizes.contiguous()
    bs, budget = parents.shape
    next_token, next_sibling = torch.empty(2, bs, budget, dtype=torch.int64).unbind()
    load().jetspec_child_links(
        parents, sizes, bs, budget,
        next_token, next_sibling,
    )  # fmt: skip
    return next_token, next_sibling
