"""Attention of the host platform: checks a call and hands it to the compiled kernel. No I/O."""

from __future__ import annotations

from enum import IntEnum

import torch

from jetspec_sglang.host.kernels.library import load
from jetspec_sglang.host.kernels.linear import DTYPES, Dot, dots

_TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class MaskMode(IntEnum):
    """The new rows of its request that a row sees, in addition to the whole cached prefix."""

    CAUSAL = 0  # those up to itself
    FULL = 1  # all
    TREE = 2  # row 0 (the root), its ancestors and itself


def attention(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    out: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    prefix_lens: torch.Tensor,
    row_starts: torch.Tensor,
    parents: torch.Tensor | None,
    mode: MaskMode,
    scale: float,
    logit_cap: float = 0.0,
    dot: Dot | None = None,
) -> None:
    """Write softmax(scale * q K^T) V of every row to `out`, reading K/V in place.

    A row's result depends on its own keys alone, in the order prefix, then the rows it sees from
    first to last: it has the same bits in any mode, batch, tile and with any number of threads.
    Sums are float32 whatever the types.

    Args:
        q: [T, Hq, Dk], the new rows of all requests one after another; float32, bfloat16 or
            float16. A row's Hq * Dk values must be contiguous.
        k_pool, v_pool: [slots, Hkv, Dk], [slots, Hkv, Dv], both of one of these types; new rows
            are already written. Hq is a multiple of Hkv, Dk and Dv of 16.
        out: [T, Hq, Dv], the type of q. Rows outside `row_starts` are left as they are.
        req_to_token: int32 [R, width], slot of every position of every request; trusted to
            lie within the pools.
        req_pool_indices: int [bs], each request's row of `req_to_token`.
        prefix_lens: int [bs], cached positions that all rows of the request see. Its new row j is
            position prefix_lens + j.
        row_starts: int [bs + 1], request i owns rows row_starts[i] to row_starts[i + 1].
        parents: int [T], TREE only: a row's parent as a row of the same request, always an
            earlier one; -1 for the root and for padding, which sees the prefix, row 0 and itself.
        mode: which new rows a row sees.
        scale: factor of the scores.
        logit_cap: c > 0 replaces a score s by c * tanh(s / c).
        dot: `Dot.TILES` multiplies on AMX, which needs q and the pools in bfloat16; any other, on
            vectors in float32. By default that of a linear of the same dtype.

    Raises:
        ValueError: on tensors that do not fit each other, or a `dot` that this CPU or their types
            do not allow. `out` is then unchanged.
    """
    rows, heads, k_dim = q.shape
    slots, kv_heads, v_dim = v_pool.shape
    if k_pool.shape != (slots, kv_heads, k_dim) or out.shape != (rows, heads, v_dim):
        raise ValueError(
            f"shapes of q {tuple(q.shape)}, k_pool {tuple(k_pool.shape)}, v_pool "
            f"{tuple(v_pool.shape)}, out {tuple(out.shape)}: they must be [T, Hq, Dk], "
            "[slots, Hkv, Dk], [slots, Hkv, Dv], [T, Hq, Dv]"
        )
    if heads % kv_heads or k_dim % 16 or v_dim % 16:
        raise ValueError(
            f"{heads} query heads, {kv_heads} KV heads, dimensions {k_dim} and {v_dim}: query "
            "heads must be a multiple of KV heads, dimensions multiples of 16"
        )
    io_type, pool_type = _TYPES.get(q.dtype), _TYPES.get(k_pool.dtype)
    if io_type is None or pool_type is None or out.dtype != q.dtype or v_pool.dtype != k_pool.dtype:
        raise ValueError(
            f"types of q {q.dtype}, out {out.dtype}, k_pool {k_pool.dtype}, v_pool "
            f"{v_pool.dtype}: q and out must have one type, and the pools one type; allowed "
            "are float32, bfloat16, float16"
        )
    if (
        q.stride()[1:] != (k_dim, 1)
        or out.stride()[1:] != (v_dim, 1)
        or k_pool.stride()[1:] != (k_dim, 1)
        or v_pool.stride()[1:] != (v_dim, 1)
        or req_to_token.stride(1) != 1
    ):
        raise ValueError("q, out, k_pool, v_pool and req_to_token must be contiguous within a row")
    if req_to_token.dtype != torch.int32:
        raise ValueError(f"req_to_token is {req_to_token.dtype}: it must be torch.int32")
    if mode == MaskMode.TREE and (parents is None or parents.shape != (rows,)):
        raise ValueError(f"parents must have shape ({rows},) in TREE mode")
    allowed = _dots(q.dtype, k_pool.dtype)
    if dot is not None and dot not in allowed:
        names = ", ".join(one.name for one in allowed)
        raise ValueError(
            f"dot {dot.name}: on this CPU it must be one of {names} for q {q.dtype} and pools "
            f"{k_pool.dtype}"
        )
    bs = req_pool_indices.shape[0]
    if prefix_lens.shape != (bs,) or row_starts.shape != (bs + 1,):
        raise ValueError(
            f"prefix_lens has shape {tuple(prefix_lens.shape)}, row_starts "
            f"{tuple(row_starts.shape)}: they must be ({bs},) and ({bs + 1},)"
        )
    indices = req_pool_indices.long().contiguous()
    prefixes = prefix_lens.long().contiguous()
    starts = row_starts.long().contiguous()
    tree = None if parents is None else parents.long().contiguous()
    refused = load().jetspec_attention(
        q, q.stride(0), out, out.stride(0), io_type,
        k_pool, k_pool.stride(0), v_pool, v_pool.stride(0), pool_type,
        req_to_token, req_to_token.stride(0), indices,
        prefixes, starts, tree,
        bs, rows, heads, kv_heads, k_dim, v_dim, mode, scale, logit_cap,
        allowed[0] if dot is None else dot,
    )  # fmt: skip
    if refused:
        raise ValueError(
            f"row_starts={starts.tolist()}, prefix_lens={prefixes.tolist()}: rows must ascend "
            f"within {rows}, positions fit req_to_token's {req_to_token.shape[1]} columns, and "
            "parents be earlier rows of the same request or -1"
        )


def _dots(dtype: torch.dtype, pool_dtype: torch.dtype) -> tuple[Dot, ...]:
    """Fastest first."""
    return dots(dtype) if dtype == pool_dtype and dtype in DTYPES else (Dot.FLOAT,)
