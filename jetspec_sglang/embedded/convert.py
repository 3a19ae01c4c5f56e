"""Convert a llama-architecture GGUF file into a Hugging Face folder of float32 safetensors.

Contract: `convert(gguf, folder)` fills an existing empty folder with config.json,
generation_config.json, model.safetensors and the tokenizer. I/O: reads `gguf`, writes `folder`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file
from tqdm import tqdm

from jetspec_sglang.embedded.tokenizer import write_tokenizer

_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, folder: Path) -> None:
    """Write the Hugging Face form of `gguf` into `folder`."""
    reader = GGUFReader(gguf)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = llama_config(fields, tied=all(t.name != "output.weight" for t in reader.tensors))
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    weights = {}
    for tensor in tqdm(reader.tensors, desc="dequantise", unit="tensor", leave=False):
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        part = tensor.name.split(".")[-2]
        if part in heads:
            weight = unpermute_rope(weight, heads[part])
        weights[hf_name(tensor.name)] = np.ascontiguousarray(weight)
    file = folder / "model.safetensors"
    save_file(weights, file, metadata={"format": "pt"})
    file.chmod(0o644)  # safetensors leaves it to its owner alone; a cache may be shared
    _write_json(folder / "config.json", config)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", ids)
    write_tokenizer(fields, folder)


def llama_config(fields: dict[str, Any], tied: bool) -> dict[str, Any]:
    """config.json of a `LlamaForCausalLM` from GGUF metadata. ValueError for another model."""
    if fields["general.architecture"] != "llama":
        raise ValueError(f"general.architecture is {fields['general.architecture']!r}, not 'llama'")
    hidden = fields["llama.embedding_length"]
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": fields["llama.context_length"],
        # GGUF keeps it as float32; its shortest decimal is the number that was meant.
        "rms_norm_eps": float(str(np.float32(fields["llama.attention.layer_norm_rms_epsilon"]))),
        "rope_theta": fields["llama.rope.freq_base"],
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "torch_dtype": "float32",
    }


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor. KeyError for one that a llama does not have."""
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    _, layer, part, suffix = name.split(".")
    return f"model.layers.{layer}.{_PER_LAYER[part]}.{suffix}"


def unpermute_rope(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a Q or K projection [heads·dim, in] from GGUF's order back to Hugging Face's.

    GGUF interleaves the two halves of each head (row 2i and 2i+1 rotate together), Hugging Face
    keeps them apart (row i and i + dim/2).
    """
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
