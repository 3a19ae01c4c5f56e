"""Head configs: defaults, the three causal spellings, and one clear error for each mistake."""

import copy
import json
from types import SimpleNamespace

import pytest

from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.head.finding import HeadError
from jetspec_sglang.training.start import default_target_layer_ids
from tests.unit.head.helpers import TINY


def raw(**changes):
    return {**copy.deepcopy(TINY), **changes}


def flags(top=None, **nested):
    config = raw()
    config["dflash_config"] = {"target_layer_ids": [0, 2, 5], "mask_token_id": 3, **nested}
    if top is not None:
        config["is_causal"] = top
    return config


def test_released_default_taps():
    assert default_target_layer_ids(36, 5) == (1, 9, 17, 25, 33)
    assert default_target_layer_ids(30, 1) == (15,)


def test_taps_are_never_guessed():
    config = raw()
    del config["dflash_config"]["target_layer_ids"]
    with pytest.raises(HeadError, match="target_layer_ids: missing") as error:
        HeadConfig.from_dict(config)
    [finding] = error.value.findings
    assert (finding.code, finding.field, finding.value) == (
        "missing",
        "target_layer_ids",
        "missing",
    )


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize(
    "spell",
    [
        lambda v: flags(causal_head=v),
        lambda v: flags(causal=v),
        lambda v: flags(top=v),
        lambda v: flags(top=v, causal=v, causal_head=v),
    ],
)
def test_every_causal_spelling(spell, value):
    assert HeadConfig.from_dict(spell(value)).causal is value


def test_no_causal_flag_is_a_bidirectional_head():
    assert HeadConfig.from_dict(flags()).causal is False


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (flags(causal_head=True, causal=False), ("dflash_config.causal_head", "dflash_config.causal")),
        (flags(top=False, causal_head=True), ("dflash_config.causal_head", "is_causal")),
        (flags(top=True, causal=False), ("dflash_config.causal", "is_causal")),
    ],
)  # fmt: skip
def test_contradicting_causal_flags_are_named(config, names):
    with pytest.raises(ValueError, match="contradicts itself") as error:
        HeadConfig.from_dict(config)
    assert all(name in str(error.value) for name in names)


def test_causal_must_be_a_boolean():
    with pytest.raises(ValueError, match="causal_head = 1: must be true or false"):
        HeadConfig.from_dict(flags(causal_head=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 1}, "block_size = 1"),
        ({"block_size": "8"}, "block_size = '8'"),
        ({"block_size": None}, "block_size: missing"),
        ({"head_dim": 7}, "head_dim = 7"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3"),
        ({"attention_bias": True}, "attention_bias = True"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention"] * 2}, "layer_types"),
        ({"dflash_config": 3}, "dflash_config = 3"),
        (
            {"dflash_config": {"target_layer_ids": [0], "mask_token_id": 40}},
            "mask_token_id = 40: must be below",
        ),
        ({"dflash_config": {"mask_token_id": -1}}, "mask_token_id = -1"),
        ({"dflash_config": {}}, "mask_token_id: missing"),
        (
            {"dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 6]}},
            r"target_layer_ids = \[0, 6\]",
        ),
        (
            {"dflash_config": {"mask_token_id": 3, "target_layer_ids": [2, 0]}},
            "must increase strictly",
        ),
        (
            {"dflash_config": {**TINY["dflash_config"], "target_hidden_size": 32}},
            "target_hidden_size = 32",
        ),
        (
            {"dflash_config": {"mask_token_id": 3, "projector_type": "domino"}},
            "projector_type = 'domino'",
        ),
    ],
)
def test_a_bad_value_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        HeadConfig.from_dict(raw(**changes))


def test_round_trip():
    config = HeadConfig.from_dict(raw(draft_shift=True))
    assert HeadConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_rope_in_both_spellings():
    new = raw(
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5000}, rope_theta=None
    )
    old = raw(rope_scaling={"type": "linear", "factor": 2.0}, rope_theta=5000)
    for config in (HeadConfig.from_dict(new), HeadConfig.from_dict(old)):
        assert config.rope_theta == 5000.0
        assert config.rope_parameters == {"rope_type": "linear", "factor": 2.0}


NESTED = {"full_attention": {"rope_type": "default", "rope_theta": 5000}}
SPELLED_TWICE = {
    "rope_theta": {"rope_theta": 9, "rope_parameters": {"rope_theta": 5000}},
    "rope_scaling": {
        "rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 5000},
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000},
    },
    "rope_type": {"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}},
    "layer_types": {"layer_types": ["full_attention"] * 3},
    "block_size": {"dflash_config": {**TINY["dflash_config"], "block_size": 9}},
    "mask_token_id": {"mask_token_id": 4},
    "target_layer_ids": {"target_layer_ids": [1, 2, 3]},
}


@pytest.mark.parametrize("field", SPELLED_TWICE)
def test_a_config_that_contradicts_itself_is_refused(field):
    changes = copy.deepcopy(SPELLED_TWICE[field])
    config = raw(**changes)
    if field in ("rope_scaling", "rope_type"):
        del config["rope_theta"]
    with pytest.raises(HeadError, match="contradicts itself") as error:
        HeadConfig.from_dict(config)
    [finding] = error.value.findings
    assert finding.code == "contradiction"
    assert field in finding.field


@pytest.mark.parametrize("name", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("theta", [None, 5000])
def test_rope_parameters_per_kind_of_attention_are_refused(name, theta):
    with pytest.raises(HeadError, match=rf"{name} = .*10000") as error:
        HeadConfig.from_dict(raw(**{name: NESTED, "rope_theta": theta}))
    [finding] = error.value.findings
    assert finding.code == "nested_rope"
    assert f"{name}.full_attention" in finding.remedy


def test_the_base_of_the_rotary_embedding_is_never_guessed():
    with pytest.raises(HeadError, match="rope_theta: missing"):
        HeadConfig.from_dict(raw(rope_theta=None))


def test_the_same_rope_in_two_spellings_is_no_contradiction():
    config = HeadConfig.from_dict(
        raw(
            rope_theta=5000,
            rope_scaling={"type": "linear", "factor": 2.0},
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
        )
    )
    assert config.rope_parameters == {"rope_type": "linear", "factor": 2.0}


def test_a_head_that_reads_fewer_positions_than_its_target_is_a_warning():
    config = HeadConfig.from_dict(raw(max_position_embeddings=64))
    same = {"hidden_size": 16, "vocab_size": 40, "num_hidden_layers": 6}
    assert config.target_findings({**same, "max_position_embeddings": 64}) == []
    [finding] = config.target_findings({**same, "max_position_embeddings": 128})
    assert (finding.code, finding.severity, finding.value) == ("short_context", "warn", 64)
    assert "--context-length 64" in finding.remedy
    config.check_against_target({**same, "max_position_embeddings": 128})


def test_a_config_that_git_lfs_has_not_fetched(tmp_path):
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    with pytest.raises(HeadError, match="Git LFS pointer") as error:
        HeadConfig.from_folder(tmp_path)
    assert f"git lfs pull` in {tmp_path}" in error.value.findings[0].remedy


def test_check_against_target_lists_every_difference():
    config = HeadConfig.from_dict(raw())
    same = {"hidden_size": 16, "vocab_size": 40, "num_hidden_layers": 6}
    config.check_against_target(same)
    config.check_against_target(SimpleNamespace(**same))
    with pytest.raises(ValueError, match="hidden_size: the head was made for 16, the target has 8"):
        config.check_against_target({**same, "hidden_size": 8})
    with pytest.raises(ValueError, match=r"vocab_size.*num_hidden_layers"):
        config.check_against_target({"hidden_size": 16})


def test_folder_errors(tmp_path):
    with pytest.raises(HeadError, match=r"no config\.json"):
        HeadConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        HeadConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="one JSON object"):
        HeadConfig.from_folder(tmp_path)
