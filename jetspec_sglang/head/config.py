"""`HeadConfig`: the config.json of a head folder, checked and in one spelling.

Contract: `HeadConfig.from_folder` reads one file; everything else here is pure. Problems raise
`HeadError`, whose findings name the field, its value and what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from jetspec_sglang.head.finding import MISSING, Finding, HeadError

CAUSAL_SPELLINGS = ("dflash_config.causal_head", "dflash_config.causal", "is_causal")
"""JetSpec's release, NeMo and vLLM, and stock SGLang, in this order."""

_NESTED_OR_TOP = (
    "target_layer_ids",
    "mask_token_id",
    "target_hidden_size",
    "draft_shift",
    "block_size",
    "num_target_layers",
)
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of a file that Git LFS has not fetched yet."""

# Settings of related heads that change the forward pass and that this head does not have.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (None, False),
    "attention_sink_bias": (None, False),
    "attention_value_scale": (None, 1, 1.0),
    "conv_kernel_size": (None, 0),
    "final_logit_softcapping": (None, 0, 0.0),
    "hidden_act": (None, "silu"),
    "output_multiplier": (None, 1, 1.0),
    "partial_rotary_factor": (None, 1, 1.0),
    "projector_type": (None,),
    "selector_rank": (None, 0),
    "use_gemma_norm": (None, False),
    "use_sliding_window": (None, False),
}


class HeadConfig(BaseModel):
    """A draft head's shape and taps.

    A tap `L` is the output of the target's block `L` (0-based), after its residual additions.
    `rope_parameters` keeps the scaling rule as transformers spells it (`rope_type`, `factor`, ...).
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    block_size: int = Field(ge=2, le=1024)
    hidden_size: int = Field(ge=1)
    intermediate_size: int = Field(ge=1)
    num_hidden_layers: int = Field(ge=1)
    num_attention_heads: int = Field(ge=1)
    num_key_value_heads: int = Field(ge=1)
    head_dim: int = Field(ge=2, multiple_of=2)
    vocab_size: int = Field(ge=2)
    max_position_embeddings: int = Field(default=32768, ge=2)
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    rope_theta: float = Field(default=10000.0, gt=0)
    rope_parameters: dict[str, Any] = Field(default_factory=dict)
    num_target_layers: int = Field(ge=1)
    target_hidden_size: int = Field(ge=1)
    target_layer_ids: tuple[int, ...] = Field(min_length=1)
    mask_token_id: int = Field(ge=0)
    causal: bool = False
    draft_shift: bool = False

    @property
    def depths(self) -> int:
        """Depths one pass scores: 1 to block_size - 1."""
        return self.block_size - 1

    @property
    def num_taps(self) -> int:
        return len(self.target_layer_ids)

    @model_validator(mode="after")
    def _consistent(self) -> HeadConfig:
        if self.num_attention_heads % self.num_key_value_heads:
            raise _invalid(
                "num_key_value_heads",
                self.num_key_value_heads,
                f"must divide num_attention_heads = {self.num_attention_heads}",
            )
        if self.target_hidden_size != self.hidden_size:
            raise _invalid(
                "target_hidden_size",
                self.target_hidden_size,
                f"must equal hidden_size = {self.hidden_size}; heads with a hidden-size adapter "
                "are not supported",
            )
        taps = self.target_layer_ids
        if any(not 0 <= tap < self.num_target_layers for tap in taps):
            raise _invalid(
                "dflash_config.target_layer_ids",
                list(taps),
                f"every id must be 0 to num_target_layers - 1 = {self.num_target_layers - 1}",
            )
        if any(a >= b for a, b in pairwise(taps)):
            raise _invalid("dflash_config.target_layer_ids", list(taps), "must increase strictly")
        if self.mask_token_id >= self.vocab_size:
            raise _invalid(
                "dflash_config.mask_token_id",
                self.mask_token_id,
                f"must be below vocab_size = {self.vocab_size}",
            )
        return self

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> HeadConfig:
        """Parse a config.json mapping. Raises HeadError."""
        try:
            return cls(**_flatten(raw))
        except ValidationError as error:
            raise HeadError(_findings(error)) from None

    @classmethod
    def from_folder(cls, folder: str | Path) -> HeadConfig:
        """Read `folder`/config.json. Raises HeadError."""
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise HeadError([_file("config_missing", "has no config.json")], f"{folder}")
        data = path.read_bytes()
        if data.startswith(LFS_POINTER):
            raise HeadError([lfs_pointer(path)], f"{folder}")
        try:
            raw = json.loads(data)
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise HeadError(
                [_file("config_damaged", f"not valid JSON: {error}")], f"{folder}"
            ) from None
        if not isinstance(raw, dict):
            allowed = f"must contain one JSON object, holds {type(raw).__name__}"
            raise HeadError([_file("config_damaged", allowed)], f"{folder}")
        try:
            return cls.from_dict(raw)
        except HeadError as error:
            raise HeadError(error.findings, str(path)) from None

    def to_dict(self, dtype: str = "bfloat16") -> dict[str, Any]:
        """The config.json of the release's layout, with the causal flag in all three spellings."""
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": False,
            "use_cache": True,
            "use_sliding_window": False,
            "sliding_window": None,
            "layer_types": ["full_attention"] * self.num_hidden_layers,
            "dtype": dtype,
            **{
                name: getattr(self, name)
                for name in (
                    "block_size",
                    "hidden_size",
                    "intermediate_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "num_key_value_heads",
                    "head_dim",
                    "vocab_size",
                    "max_position_embeddings",
                    "rms_norm_eps",
                    "rope_theta",
                    "num_target_layers",
                )
            },
            "rope_scaling": None,
            "rope_parameters": {
                "rope_type": "default",
                **self.rope_parameters,
                "rope_theta": self.rope_theta,
            },
            "is_causal": self.causal,
            "dflash_config": {
                "causal_head": self.causal,
                "causal": self.causal,
                "target_layer_ids": list(self.target_layer_ids),
                "mask_token_id": self.mask_token_id,
                **({"draft_shift": True} if self.draft_shift else {}),
            },
        }

    def check_against_target(self, target_config: Any) -> None:
        """HeadError when the head was made for another target; see `target_findings`."""
        found = [f for f in self.target_findings(target_config) if f.severity == "fail"]
        if found:
            raise HeadError(found, "this draft head does not fit the target")

    def target_findings(self, target_config: Any) -> list[Finding]:
        """The differences from a target, which is a transformers config or a mapping like
        config.json."""
        get = _getter(target_config)
        wanted = {
            "hidden_size": self.target_hidden_size,
            "vocab_size": self.vocab_size,
            "num_hidden_layers": self.num_target_layers,
        }
        found = [
            Finding(
                f"target_{name}",
                name,
                None,
                f"the head was made for {ours}, the target has {get(name)}",
                "name a head made for this target, or serve the target it was made for",
            )
            for name, ours in wanted.items()
            if get(name) != ours
        ]
        context = get("max_position_embeddings")
        if isinstance(context, int) and context > self.max_position_embeddings:
            found.append(
                Finding(
                    "short_context",
                    "max_position_embeddings",
                    self.max_position_embeddings,
                    f"the target reads {context} positions; drafts after position "
                    f"{self.max_position_embeddings} are less likely to be accepted",
                    f"serve with --context-length {self.max_position_embeddings}, or expect slower "
                    "decoding of longer texts",
                    severity="warn",
                )
            )
        return found


def _flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of `dflash_config` and of both rope spellings brought to the model's field names."""
    nested = raw.get("dflash_config") or {}
    if not isinstance(nested, Mapping):
        raise HeadError([Finding("type", "dflash_config", nested, "must be an object")])
    for name, allowed in _NEUTRAL.items():
        for where, source in (("dflash_config.", nested), ("", raw)):
            value = source.get(name)
            if value not in allowed:
                finding = Finding(
                    "unsupported", f"{where}{name}", value, "not supported by this engine"
                )
                raise HeadError([finding])
    _check_layer_types(raw)

    flat = dict(raw)
    for name in _NESTED_OR_TOP:
        inner, outer = nested.get(name), raw.get(name)
        if inner is not None and outer is not None and inner != outer:
            raise _contradiction({f"dflash_config.{name}": inner, name: outer})
        if inner is not None:
            flat[name] = inner
    flat["causal"] = _causal(raw, nested)
    _fill_defaults(flat)
    return {name: value for name, value in flat.items() if value is not None}


def _fill_defaults(flat: dict[str, Any]) -> None:
    rope = _rope(flat)
    if "rope_theta" in rope:
        flat["rope_theta"] = rope.pop("rope_theta")
    for name in ("rope_theta", "rms_norm_eps"):
        if type(flat.get(name)) is int:
            flat[name] = float(flat[name])
    flat["rope_parameters"] = rope
    heads, hidden = flat.get("num_attention_heads"), flat.get("hidden_size")
    flat.setdefault("num_key_value_heads", heads)
    if flat.get("head_dim") is None and type(heads) is int and type(hidden) is int and heads > 0:
        flat["head_dim"] = hidden // heads
    if flat.get("target_hidden_size") is None:
        flat["target_hidden_size"] = hidden
    if isinstance(taps := flat.get("target_layer_ids"), list):
        flat["target_layer_ids"] = tuple(taps)


def _check_layer_types(raw: Mapping[str, Any]) -> None:
    kinds, layers = raw.get("layer_types"), raw.get("num_hidden_layers")
    if kinds is None:
        return
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        allowed = "only full_attention is supported"
        raise HeadError([Finding("unsupported", "layer_types", kinds, allowed)])
    if type(layers) is int and len(kinds) != layers:
        raise _contradiction({"num_hidden_layers": layers, "number of layer_types": len(kinds)})


def _rope(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The rope rule in one spelling. Every spelling that is there must say the same."""
    rules = {
        name: _one_rope(name, flat[name])
        for name in ("rope_parameters", "rope_scaling")
        if flat.get(name) is not None
    }
    thetas = {f"{name}.rope_theta": rule.get("rope_theta") for name, rule in rules.items()}
    thetas["rope_theta"] = flat.get("rope_theta")
    thetas = {name: value for name, value in thetas.items() if value is not None}
    if len(set(thetas.values())) > 1:
        raise _contradiction(thetas)
    if not thetas:
        allowed = "the engine would have to guess the base of the head's rotary embedding"
        raise HeadError([Finding("missing", "rope_theta", MISSING, allowed)])
    scalings = {
        name: {key: value for key, value in rule.items() if key != "rope_theta"}
        for name, rule in rules.items()
    }
    if len(scalings) > 1 and scalings["rope_parameters"] != scalings["rope_scaling"]:
        raise _contradiction(scalings)
    rule = next(iter(scalings.values()), {"rope_type": "default"})
    return {**rule, "rope_theta": next(iter(thetas.values()))}


def _one_rope(name: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise HeadError([Finding("type", name, given, "must be an object")])
    nested = [key for key, value in given.items() if isinstance(value, Mapping)]
    if nested:
        raise HeadError(
            [
                Finding(
                    "nested_rope",
                    name,
                    dict(given),
                    "SGLang does not read parameters per kind of attention, and would use "
                    "rope_theta = 10000",
                    f"write the values of {name}.{nested[0]} into {name} itself",
                )
            ]
        )
    rule = dict(given)
    if "type" in rule:
        kind = rule.pop("type")
        if rule.setdefault("rope_type", kind) != kind:
            raise _contradiction({f"{name}.type": kind, f"{name}.rope_type": rule["rope_type"]})
    rule.setdefault("rope_type", "default")
    return rule


def _causal(raw: Mapping[str, Any], nested: Mapping[str, Any]) -> bool:
    """One causal flag out of three spellings; none of them means a (bidirectional) DFlash head."""
    found: dict[str, bool] = {}
    for name in CAUSAL_SPELLINGS:
        prefix, _, key = name.rpartition(".")
        value = (nested if prefix else raw).get(key)
        if value is None:
            continue
        if type(value) is not bool:
            raise HeadError([Finding("type", name, value, "must be true or false")])
        found[name] = value
    if len(set(found.values())) > 1:
        raise _contradiction(found)
    return next(iter(found.values()), False)


def _invalid(field: str, value: Any, allowed: str) -> PydanticCustomError:
    return PydanticCustomError(
        "invalid", "{allowed}", {"field": field, "value": value, "allowed": allowed}
    )


def _contradiction(values: Mapping[str, Any]) -> HeadError:
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
    allowed = f"the config contradicts itself ({pairs}); make them equal"
    return HeadError([Finding("contradiction", " and ".join(values), None, allowed)])


def _file(code: str, allowed: str) -> Finding:
    return Finding(code, "config.json", None, allowed, "name the folder of a head")


def lfs_pointer(path: Path) -> Finding:
    """The finding for a file of which only Git LFS's pointer is there."""
    return Finding(
        "lfs_pointer",
        path.name,
        None,
        "is a Git LFS pointer, not the file itself",
        f"run `git lfs pull` in {path.parent}",
    )


def _findings(error: ValidationError) -> list[Finding]:
    found = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            found.append(Finding("missing", name, MISSING, "the head's config does not contain it"))
        elif problem["type"] == "invalid":
            context = problem["ctx"]
            found.append(Finding("invalid", context["field"], context["value"], context["allowed"]))
        else:
            found.append(Finding("invalid", name, problem["input"], problem["msg"]))
    return found


def _getter(config: Any) -> Any:
    if isinstance(config, Mapping):
        return config.get("text_config", config).get
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return lambda name: getattr(text, name, None)
