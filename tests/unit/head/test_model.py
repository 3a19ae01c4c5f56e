"""The reference head: what each block row sees, and a second, loop-written forward pass."""

import math

import pytest
import torch

from jetspec_sglang.head.model import visible
from tests.unit.head.helpers import tiny_config, tiny_head

LENGTH = 7


def inputs(config, anchors=(3, 6), seed=1):
    torch.manual_seed(seed)
    features = torch.randn(1, LENGTH, config.num_taps * config.hidden_size, dtype=torch.float64)
    tokens = torch.randint(4, config.vocab_size, (1, len(anchors)))
    return features, torch.tensor([anchors]), tokens


def causal(value: bool) -> dict:
    return {
        "dflash_config": {
            "causal_head": value,
            "target_layer_ids": [0, 2, 5],
            "mask_token_id": 3,
        }
    }


def slow_forward(head, features, position, block):
    """One anchor, one row and one attention head at a time, straight from the contract."""
    c = head.config
    state = dict(head.state_dict())

    def norm(x, weight):
        return x / math.sqrt(float((x * x).mean()) + c.rms_norm_eps) * weight

    def rotate(x, at):
        half = c.head_dim // 2
        out = x.clone()
        for i in range(half):
            angle = at * c.rope_theta ** (-2 * i / c.head_dim)
            cos, sin = math.cos(angle), math.sin(angle)
            out[i] = x[i] * cos - x[i + half] * sin
            out[i + half] = x[i + half] * cos + x[i] * sin
        return out

    context = [
        norm(state["fc.weight"] @ features[j], state["hidden_norm.weight"]) for j in range(position)
    ]
    rows = [head.embed[token].clone() for token in block]
    for index in range(c.num_hidden_layers):
        w = {k.split(".", 2)[2]: v for k, v in state.items() if k.startswith(f"layers.{index}.")}
        normed = [norm(row, w["input_layernorm.weight"]) for row in rows]
        outputs = []
        for i, row in enumerate(normed):
            last = i + 1 if c.causal else len(rows)
            sources = [(x, j) for j, x in enumerate(context)]
            sources += [(normed[j], position + j) for j in range(last)]
            mixed = []
            for h in range(c.num_attention_heads):
                g = h // (c.num_attention_heads // c.num_key_value_heads)
                part = slice(h * c.head_dim, (h + 1) * c.head_dim)
                kv_part = slice(g * c.head_dim, (g + 1) * c.head_dim)
                q = norm((w["self_attn.q_proj.weight"] @ row)[part], w["self_attn.q_norm.weight"])
                q = rotate(q, position + i)
                scores, values = [], []
                for x, at in sources:
                    k = (w["self_attn.k_proj.weight"] @ x)[kv_part]
                    k = rotate(norm(k, w["self_attn.k_norm.weight"]), at)
                    scores.append(q @ k / math.sqrt(c.head_dim))
                    values.append((w["self_attn.v_proj.weight"] @ x)[kv_part])
                weights = torch.stack(scores).softmax(0)
                mixed.append((weights[:, None] * torch.stack(values)).sum(0))
            outputs.append(w["self_attn.o_proj.weight"] @ torch.cat(mixed))
        rows = [row + out for row, out in zip(rows, outputs, strict=True)]
        for i, row in enumerate(rows):
            x = norm(row, w["post_attention_layernorm.weight"])
            gate = w["mlp.gate_proj.weight"] @ x
            inner = gate * torch.sigmoid(gate) * (w["mlp.up_proj.weight"] @ x)
            rows[i] = row + w["mlp.down_proj.weight"] @ inner
    shown = range(len(block) - 1) if c.draft_shift else range(1, len(block))
    return torch.stack(
        [(head.lm_head @ norm(rows[i], state["norm.weight"])).log_softmax(0) for i in shown]
    )


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("shift", [True, False])
def test_equals_a_row_by_row_forward(is_causal, shift):
    config = tiny_config(**causal(is_causal), draft_shift=shift)
    head = tiny_head(config)
    features, positions, tokens = inputs(config)
    block = head.mask_block(tokens)
    got = head(features, positions, block)
    for a in range(2):
        want = slow_forward(head, features[0], int(positions[0, a]), block[0, a])
        torch.testing.assert_close(got[0, a], want, rtol=1e-6, atol=1e-6)


def test_reduced_vocabulary_is_the_full_one_renormalised():
    config = tiny_config()
    ids = torch.tensor([0, 4, 5, 11, 39])
    full, reduced = tiny_head(config), tiny_head(config, draft_vocab=ids)
    features, positions, tokens = inputs(config)
    block = full.mask_block(tokens)
    want = full(features, positions, block)[..., ids].log_softmax(-1)
    torch.testing.assert_close(reduced(features, positions, block), want)


@pytest.mark.parametrize("is_causal", [True, False])
def test_an_anchor_never_sees_its_future(is_causal):
    config = tiny_config(**causal(is_causal))
    head = tiny_head(config)
    features, positions, tokens = inputs(config)
    block = head.mask_block(tokens)
    base = head(features, positions, block)
    for place in range(LENGTH):
        changed = features.clone()
        changed[0, place] += 1.0
        moved = (head(changed, positions, block) - base).abs().amax(dim=(2, 3))[0] > 1e-9
        assert moved.tolist() == [place < int(p) for p in positions[0]], place


def test_anchors_do_not_see_each_other():
    config = tiny_config()
    head = tiny_head(config)
    features, positions, tokens = inputs(config)
    base = head(features, positions, head.mask_block(tokens))
    tokens[0, 0] += 1
    moved = head(features, positions, head.mask_block(tokens))
    assert not torch.allclose(moved[0, 0], base[0, 0])
    assert torch.equal(moved[0, 1], base[0, 1])


@pytest.mark.parametrize("is_causal", [True, False])
def test_block_rows_see_earlier_rows_and_later_ones_only_when_bidirectional(is_causal):
    config = tiny_config(**causal(is_causal))
    head = tiny_head(config)
    features, positions, tokens = inputs(config)
    block = head.mask_block(tokens)
    base = head(features, positions, block)
    for row in range(config.block_size):
        changed = block.clone()
        changed[0, 0, row] = 30
        moved = (head(features, positions, changed) - base).abs().amax(dim=-1)[0, 0] > 1e-9
        assert moved.tolist() == [
            depth >= row or not is_causal for depth in range(1, config.block_size)
        ], row


def test_a_causal_block_can_be_cut_short():
    config = tiny_config()
    head = tiny_head(config)
    features, positions, tokens = inputs(config)
    long = head(features, positions, head.mask_block(tokens))
    short = head(features, positions, head.mask_block(tokens, 3))
    torch.testing.assert_close(short, long[:, :, :2])


def test_padding_a_batch_changes_nothing():
    config = tiny_config()
    head = tiny_head(config)
    features, positions, tokens = inputs(config)
    alone = head(features, positions, head.mask_block(tokens))
    padded = torch.cat((features, torch.full_like(features, 50.0)), dim=1)
    torch.testing.assert_close(head(padded, positions, head.mask_block(tokens)), alone)


def test_visible_counts():
    context, block = visible(torch.tensor([[0, 2]]), rows=3, context=4, causal=True)
    assert context.sum(dim=-1).flatten().tolist() == [0, 2]
    assert block.sum(dim=-1).tolist() == [1, 2, 3]


def test_gradient_checkpointing_gives_the_same_gradients():
    config = tiny_config()
    features, positions, tokens = inputs(config)
    gradients = []
    for flag in (False, True):
        head = tiny_head(config)
        head.checkpoint_layers = flag
        head(features, positions, head.mask_block(tokens))[..., 0].sum().backward()
        gradients.append([p.grad.clone() for p in head.parameters()])
    for plain, saved in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, saved)
