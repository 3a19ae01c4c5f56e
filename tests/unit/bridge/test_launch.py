"""Targets whose layers keep a state or MLA latents are refused, whatever SGLang calls them."""

from types import SimpleNamespace

import pytest
from sglang.srt import configs
from sglang.srt.configs.linear_attn_model_registry import (
    _LINEAR_ATTN_MODEL_REGISTRY,
    get_linear_attn_config,
)
from sglang.srt.configs.model_config import AttentionArch
from transformers import Qwen3Config

from jetspec_sglang.bridge import refuse_layers_with_state


def built(name, **fields):
    return getattr(configs, name)(**fields)


STATE = {
    "Qwen3-Next": lambda: built("Qwen3NextConfig"),
    "Qwen3.5": lambda: built("Qwen3_5Config"),
    "Jet-Nemotron": lambda: built("JetNemotronConfig"),
    "Falcon-H1": lambda: built("FalconH1Config"),
    "Nemotron-H": lambda: built("NemotronHConfig"),
    "LFM2": lambda: built("Lfm2Config"),
    "LFM2-MoE": lambda: built("Lfm2MoeConfig"),
    "Mamba": lambda: built("MambaConfig"),
    "Mamba2": lambda: built("Mamba2Config"),
    "Falcon-Mamba": lambda: built("FalconMambaConfig"),
    "Granite hybrid": lambda: built(
        "GraniteMoeHybridConfig", num_hidden_layers=2, layer_types=["mamba", "attention"]
    ),
    "Zaya": lambda: built("ZayaConfig"),
    "Kimi Linear": lambda: built(
        "KimiLinearConfig",
        linear_attn_config={"kda_layers": [1], "full_attn_layers": [2], "num_heads": 1},
    ),
    "Ring linear": lambda: built("BailingHybridConfig"),
}


def model_config(hf_config, arch=AttentionArch.MHA):
    hf_config.architectures = ["ThisForCausalLM"]
    return SimpleNamespace(
        hf_config=hf_config,
        attention_arch=arch,
        is_draft_model=False,
        linear_attn_registry_result=get_linear_attn_config(hf_config),
    )


@pytest.mark.parametrize("name", STATE)
def test_layers_with_a_state_are_refused(name):
    with pytest.raises(ValueError, match="ThisForCausalLM has state-space or linear-att") as error:
        refuse_layers_with_state(model_config(STATE[name]()))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("spec", _LINEAR_ATTN_MODEL_REGISTRY, ids=lambda s: s.config_class.__name__)
def test_so_are_the_models_of_sglangs_registry(spec):
    config = model_config(Qwen3Config())
    config.linear_attn_registry_result = (spec, object())
    with pytest.raises(ValueError, match="state-space"):
        refuse_layers_with_state(config)


@pytest.mark.parametrize("arch", [arch for arch in AttentionArch if arch != AttentionArch.MHA])
def test_attention_of_another_kind_is_refused(arch):
    with pytest.raises(ValueError, match="serve targets with full attention"):
        refuse_layers_with_state(model_config(Qwen3Config(), arch))


def test_full_attention_is_served():
    refuse_layers_with_state(model_config(Qwen3Config()))
    dense = built(
        "GraniteMoeHybridConfig", num_hidden_layers=2, layer_types=["attention", "attention"]
    )
    refuse_layers_with_state(model_config(dense))
