"""The GGUF converter on a tiny made-up llama: names, RoPE order, config and tokenizer."""

import json

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from jetspec_sglang.embedded.convert import _PER_LAYER, convert, hf_name, unpermute_rope

HEADS, KV_HEADS, DIM, LAYERS = 4, 2, 8, 2
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"


def permute_rope(weight: np.ndarray, heads: int) -> np.ndarray:
    """Row 2i of a head comes from row i, row 2i+1 from row i + dim/2: GGUF's order, row by row."""
    dim = len(weight) // heads
    order = [
        h * dim + i + half * dim // 2
        for h in range(heads)
        for i in range(dim // 2)
        for half in (0, 1)
    ]
    return weight[order]


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins of the 256 bytes, in byte order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    stand_in = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    return [stand_in[b] for b in range(256)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """(transformers model, folder converted from its GGUF form)."""
    folder = tmp_path_factory.mktemp("tiny")
    tokens = [*SPECIAL, *byte_alphabet(), "he", "Ġhe"]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=HEADS * DIM,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=128,
        rope_theta=5000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    file = folder / "tiny.gguf"
    write_gguf(model, tokens, file)
    made = folder / "hf"
    made.mkdir()
    convert(file, made)
    return model, made


def write_gguf(model, tokens, file, architecture="llama"):
    writer = GGUFWriter(str(file), architecture)
    config = model.config
    writer.add_vocab_size(config.vocab_size)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges(["h e", "Ġ he"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    for layer in range(config.num_hidden_layers):
        for part, name in _PER_LAYER.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            if part in ("attn_q", "attn_k"):
                weight = permute_rope(weight, HEADS if part == "attn_q" else KV_HEADS)
            writer.add_tensor(f"blk.{layer}.{part}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_logits_equal_the_original_models(tiny):
    model, folder = tiny
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.randint(0, model.config.vocab_size, (2, 40), generator=torch.manual_seed(1))
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)


def test_config_states_what_the_gguf_says(tiny):
    config = json.loads((tiny[1] / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 5000.0
    assert config["tie_word_embeddings"] is True
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert config["head_dim"] == DIM


def test_tokenizer_merges_splits_digits_and_keeps_special_tokens_whole(tiny):
    tokenizer = AutoTokenizer.from_pretrained(tiny[1])
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("he he 42<|im_end|>").input_ids)
    assert pieces == ["he", "Ġhe", "Ġ", "4", "2", "<|im_end|>"]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.bos_token == "<|im_start|>"
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "he"}], tokenize=False)
    assert chat == "<|im_start|>he<|im_end|>"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_tokenizer_gives_every_text_back(tiny, text):
    tokenizer = AutoTokenizer.from_pretrained(tiny[1])
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.parametrize("heads", [1, 3, 9])
def test_unpermute_undoes_the_row_order_of_gguf(heads):
    weight = np.arange(heads * DIM * 5, dtype=np.float32).reshape(heads * DIM, 5)
    assert np.array_equal(unpermute_rope(permute_rope(weight, heads), heads), weight)


def test_other_architecture_is_refused(tiny, tmp_path):
    file = tmp_path / "gemma.gguf"
    write_gguf(tiny[0], [*SPECIAL, *byte_alphabet(), "he", "Ġhe"], file, architecture="gemma")
    with pytest.raises(ValueError, match="'gemma', not 'llama'"):
        convert(file, tmp_path)


def test_unknown_tensor_is_refused():
    with pytest.raises(KeyError):
        hf_name("blk.0.attn_q_norm.weight")
