"""The memory that a target, a head and a batch need, for `jetspec doctor`. Pure.

Counts what grows with the model and the batch: weights, both KV caches, one round's logits and
taps. The Python processes themselves and SGLang's workspaces come on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetspec_sglang.head.config import HeadConfig

LOGIT_BYTES = 4
"""SGLang hands logits over in float32."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The load to serve: concurrent requests, tokens per request (prompt and answer), budget B,
    host or not."""

    batch: int
    context: int
    budget: int
    element_bytes: int
    packed: bool
    """The host keeps a packed copy beside each weight."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by purpose."""

    weights: int
    target_kv: int
    head_kv: int
    logits: int
    taps: int

    @property
    def total(self) -> int:
        return self.weights + self.target_kv + self.head_kv + self.logits + self.taps


def estimate(
    target: Mapping[str, Any], target_parameters: int, head: HeadConfig | None, load: Demand
) -> Memory:
    """Bytes that serving takes. `target` is its config.json, `head` None for plain decoding.

    A request holds `context` committed tokens and, while a round runs, max(B, block) more slots.
    """
    attention_heads = target["num_attention_heads"]
    target_kv = _kv_bytes(
        target["num_hidden_layers"],
        target.get("num_key_value_heads") or attention_heads,
        target.get("head_dim") or target["hidden_size"] // attention_heads,
        load,
    )
    copies = 2 if load.packed else 1
    window = max(load.budget, head.block_size if head else 1)
    slots = load.batch * (load.context + window)
    parameters = target_parameters + (_head_parameters(head) if head else 0)
    rows = load.batch * load.budget
    head_rows = load.batch * (head.block_size - 1) if head else 0
    return Memory(
        weights=parameters * load.element_bytes * copies,
        target_kv=slots * target_kv,
        head_kv=slots
        * (
            _kv_bytes(head.num_hidden_layers, head.num_key_value_heads, head.head_dim, load)
            if head
            else 0
        ),
        logits=max(rows, head_rows) * target["vocab_size"] * LOGIT_BYTES,
        taps=rows * head.num_taps * head.target_hidden_size * load.element_bytes if head else 0,
    )


def _kv_bytes(layers: int, kv_heads: int, head_dim: int, load: Demand) -> int:
    return 2 * layers * kv_heads * head_dim * load.element_bytes


def _head_parameters(head: HeadConfig) -> int:
    from jetspec_sglang.head.checkpoint import expected_tensors

    total = 0
    for shape in expected_tensors(head).values():
        size = 1
        for side in shape:
            size *= side
        total += size
    return total
