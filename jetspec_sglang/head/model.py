"""`HeadModel`: the draft head in plain torch, as the release defines its forward pass.

Contract: no SGLang here. Training optimises this module and the draft-contract test compares the
served head with it, so it takes any number of anchors a sequence and recomputes the context every
time; the served head keeps that context in a KV pool instead. Only `from_folder` does I/O.

Names in shapes: N sequences, L context positions, A anchors a sequence, n block rows, D depths,
H hidden size, T taps, V vocabulary (or draft vocabulary).
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from jetspec_sglang.head.checkpoint import load_draft_vocab, load_tensors
from jetspec_sglang.head.config import HeadConfig

Rotation = tuple[Tensor, Tensor]
"""cos and sin of the positions, each [N, 1, S, head_dim]."""

Sight = tuple[Tensor, Tensor]
"""What a row sees: of the context [N, 1, 1, A, 1, L], and of its own block [n, n] or, where blocks
differ, [N, 1, 1, A, n, n]; both bool."""


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.to(self.weight.dtype), self.weight.shape, self.weight, self.eps)


class Rope(nn.Module):
    """Rotary embedding at absolute positions, halves rotated against each other."""

    inverse_frequency: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        inverse_frequency, self.scale = _rope_parameters(config)
        self.register_buffer("inverse_frequency", inverse_frequency, persistent=False)

    def forward(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """positions [N, S] -> cos, sin [N, 1, S, head_dim]."""
        angles = positions[..., None].to(torch.float32) * self.inverse_frequency
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        return (angles.cos() * self.scale).to(dtype), (angles.sin() * self.scale).to(dtype)


def _rope_parameters(config: HeadConfig) -> tuple[Tensor, float]:
    kind = config.rope_parameters.get("rope_type", "default")
    if kind == "default":
        steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        return config.rope_theta**-steps, 1.0
    if kind not in ("linear", "llama3", "yarn"):
        raise ValueError(f"rope_type = {kind!r}: allowed are default, linear, llama3, yarn")
    from transformers import Qwen3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    inverse_frequency, scale = ROPE_INIT_FUNCTIONS[kind](
        Qwen3Config(
            head_dim=config.head_dim,
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            max_position_embeddings=config.max_position_embeddings,
            rope_parameters={**config.rope_parameters, "rope_theta": config.rope_theta},
        ),
        device="cpu",
    )
    return inverse_frequency.float(), float(scale)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(nn.Module):
    """Queries from the block only; keys and values from the context and the block."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        hidden, dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(hidden, self.heads * dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(self.heads * dim, hidden, bias=False)
        self.q_norm = RMSNorm(dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(dim, config.rms_norm_eps)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """x [N, S, H] -> rotated keys and values, both [N, kv_heads, S, head_dim]."""
        keys = self.k_norm(self._split(self.k_proj(x), self.kv_heads))
        return _rotate(keys, cos, sin), self._split(self.v_proj(x), self.kv_heads)

    def forward(
        self,
        block: Tensor,
        context: Tensor,
        block_rope: Rotation,
        context_rope: Rotation,
        see: Sight,
    ) -> Tensor:
        """block [N, A*n, H], context [N, L, H] -> [N, A*n, H].

        Scores against the context and against a row's own block are two matmuls under one softmax,
        so no block is scored against another.
        """
        queries = _rotate(self.q_norm(self._split(self.q_proj(block), self.heads)), *block_rope)
        context_k, context_v = self.keys_values(context, *context_rope)
        block_k, block_v = self.keys_values(block, *block_rope)
        context_see, block_see = see
        rows, length = block_see.shape[-1], context.shape[1]
        # Heads that share keys become extra query rows: [N, kv_heads, heads/kv, A, n, head_dim].
        queries = queries.unflatten(1, (self.kv_heads, -1)).unflatten(3, (-1, rows))
        block_k, block_v = (x.unflatten(2, (-1, rows))[:, :, None] for x in (block_k, block_v))
        against_context = queries.flatten(2, 4) @ context_k.transpose(-1, -2)
        against_context = against_context.unflatten(2, queries.shape[2:5])
        against_block = queries @ block_k.transpose(-1, -2)
        scores = torch.cat(
            (
                against_context.masked_fill(~context_see, float("-inf")),
                against_block.masked_fill(~block_see, float("-inf")),
            ),
            dim=-1,
        )
        weights = (scores * self.head_dim**-0.5).softmax(dim=-1).to(context_v.dtype)
        from_context = weights[..., :length].flatten(2, 4) @ context_v
        mixed = from_context.unflatten(2, queries.shape[2:5]) + weights[..., length:] @ block_v
        mixed = mixed.flatten(3, 4).flatten(1, 2)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """The block rows pass through norms, attention and MLP; the context only feeds keys, values."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = Mlp(config)

    def forward(
        self,
        block: Tensor,
        context: Tensor,
        block_rope: Rotation,
        context_rope: Rotation,
        see: Sight,
    ) -> Tensor:
        normed = self.input_layernorm(block)
        block = block + self.self_attn(normed, context, block_rope, context_rope, see)
        return block + self.mlp(self.post_attention_layernorm(block))


class HeadModel(nn.Module):
    """The head on top of a frozen target's embedding and output matrices, both [V, H].

    Its state dict contains exactly the release's tensors; the two matrices are not part of it.
    `draft_vocab` ([V'] ascending ids) restricts the output to those ids.
    """

    embed: Tensor
    lm_head: Tensor
    draft_vocab: Tensor | None

    def __init__(
        self,
        config: HeadConfig,
        target_embed: Tensor,
        target_lm_head: Tensor,
        draft_vocab: Tensor | None = None,
    ) -> None:
        super().__init__()
        wanted = (config.vocab_size, config.hidden_size)
        for name, matrix in (("target_embed", target_embed), ("target_lm_head", target_lm_head)):
            if tuple(matrix.shape) != wanted:
                raise ValueError(f"{name} is {list(matrix.shape)}, the head needs {list(wanted)}")
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.fc = nn.Linear(
            config.num_taps * config.target_hidden_size, config.hidden_size, bias=False
        )
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rope = Rope(config)
        self.checkpoint_layers = False
        self.register_buffer("embed", target_embed.detach(), persistent=False)
        output = target_lm_head.detach()
        if draft_vocab is not None:
            output = output[draft_vocab]
        self.register_buffer("lm_head", output, persistent=False)
        self.register_buffer("draft_vocab", draft_vocab, persistent=False)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        target_embed: Tensor,
        target_lm_head: Tensor,
        dtype: torch.dtype = torch.float32,
    ) -> HeadModel:
        """Read a checked head folder, with its draft vocabulary if it has one."""
        config = HeadConfig.from_folder(folder)
        ids = load_draft_vocab(folder, config.vocab_size)
        vocab = None if ids is None else torch.from_numpy(ids)
        head = cls(config, target_embed, target_lm_head, vocab)
        head.load_state_dict(load_tensors(folder, config))
        return head.to(dtype)

    def ids(self, columns: Tensor) -> Tensor:
        """Token ids of columns of the output, any shape."""
        return columns if self.draft_vocab is None else self.draft_vocab[columns]

    def mask_block(self, anchor_tokens: Tensor, block_size: int | None = None) -> Tensor:
        """anchor_tokens [N, A] -> block token ids [N, A, n]: the anchor, then MASK."""
        rows = block_size or self.config.block_size
        block = anchor_tokens[..., None].repeat(1, 1, rows)
        block[..., 1:] = self.config.mask_token_id
        return block

    def context(self, features: Tensor) -> Tensor:
        """Concatenated taps [N, L, T*H] -> what every layer's keys and values read, [N, L, H]."""
        return self.hidden_norm(self.fc(features.to(self.fc.weight.dtype)))

    def hidden(self, features: Tensor, anchor_positions: Tensor, block_tokens: Tensor) -> Tensor:
        """States of the scoring rows, before the output matrix: [N, A, n - 1, H].

        features [N, L, T*H] are taps of real tokens from position 0; an anchor at position p
        (anchor_positions [N, A]) sees features 0..p-1 only. block_tokens [N, A, n].
        """
        rows = block_tokens.shape[-1]
        offsets = torch.arange(rows, device=block_tokens.device)
        see = visible(anchor_positions, rows, features.shape[1], self.config.causal)
        block = self.block(features, anchor_positions[..., None] + offsets, block_tokens, see)
        shift = slice(0, rows - 1) if self.config.draft_shift else slice(1, rows)
        return self.norm(block[:, :, shift])

    def block(
        self, features: Tensor, positions: Tensor, block_tokens: Tensor, see: Sight
    ) -> Tensor:
        """All rows after the last layer, before the last norm: [N, A, n, H].

        Any row may hold any token at any of `positions` [N, A, n] and see what `see` says.
        """
        context = self.context(features)
        context_positions = torch.arange(features.shape[1], device=features.device)[None]
        dtype = self.norm.weight.dtype
        context_rope = self.rope(context_positions, dtype)
        block_rope = self.rope(positions.flatten(1), dtype)
        block = F.embedding(block_tokens.flatten(1), self.embed).to(dtype)
        for layer in self.layers:
            inputs = (block, context, block_rope, context_rope, see)
            if self.checkpoint_layers and torch.is_grad_enabled():
                block = torch.utils.checkpoint.checkpoint(layer, *inputs, use_reentrant=False)
            else:
                block = layer(*inputs)
        return block.unflatten(1, block_tokens.shape[1:])

    def forward(self, features: Tensor, anchor_positions: Tensor, block_tokens: Tensor) -> Tensor:
        """Log-probabilities of depths 1..n-1: [N, A, n - 1, V], column j = id draft_vocab[j]."""
        states = self.hidden(features, anchor_positions, block_tokens)
        logits = F.linear(states, self.lm_head.to(states.dtype))
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)


def visible(anchor_positions: Tensor, rows: int, context: int, causal: bool) -> Sight:
    """A block at position p sees context 0..p-1; row i also rows 0..i (causal) or all rows."""
    device = anchor_positions.device
    before = torch.arange(context, device=device) < anchor_positions[..., None]
    own = torch.ones(rows, rows, dtype=torch.bool, device=device)
    return before[:, None, None, :, None], own.tril() if causal else own
