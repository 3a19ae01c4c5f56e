"""`HeadConfig`: what a head folder's config.json says, checked and in one spelling.

Contract: `HeadConfig.from_folder` reads one file; everything else here is pure. Each problem is
one `ValueError` that names the field, its value and what is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

CAUSAL_SPELLINGS = ("dflash_config.causal_head", "dflash_config.causal", "is_causal")
"""JetSpec's release, NeMo and vLLM, and stock SGLang, in this order."""

_NESTED = ("target_layer_ids", "mask_token_id", "target_hidden_size", "draft_shift")
_NESTED_OR_TOP = ("block_size", "num_target_layers")

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


def default_target_layer_ids(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """Taps of a head that names none: even steps from layer 1 to the fourth from the end.

    The rule of the released `build_target_layer_ids`; a one-layer head taps the middle.
    """
    if num_layers == 1:
        return (num_target_layers // 2,)
    span = num_target_layers - 4
    return tuple(round(1 + i * span / (num_layers - 1)) for i in range(num_layers))


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
            raise ValueError(
                f"num_key_value_heads = {self.num_key_value_heads}: must divide "
                f"num_attention_heads = {self.num_attention_heads}"
            )
        if self.target_hidden_size != self.hidden_size:
            raise ValueError(
                f"target_hidden_size = {self.target_hidden_size}: must equal hidden_size = "
                f"{self.hidden_size}; heads with a hidden-size adapter are not supported"
            )
        taps = self.target_layer_ids
        if any(not 0 <= tap < self.num_target_layers for tap in taps):
            raise ValueError(
                f"dflash_config.target_layer_ids = {list(taps)}: every id must be 0 to "
                f"num_target_layers - 1 = {self.num_target_layers - 1}"
            )
        if any(a >= b for a, b in pairwise(taps)):
            raise ValueError(
                f"dflash_config.target_layer_ids = {list(taps)}: must increase strictly"
            )
        if self.mask_token_id >= self.vocab_size:
            raise ValueError(
                f"dflash_config.mask_token_id = {self.mask_token_id}: must be below vocab_size = "
                f"{self.vocab_size}"
            )
        return self

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> HeadConfig:
        """Parse a config.json mapping. Raises ValueError, one line a problem."""
        try:
            return cls(**_flatten(raw))
        except ValidationError as error:
            raise ValueError("; ".join(_lines(error))) from None

    @classmethod
    def from_folder(cls, folder: str | Path) -> HeadConfig:
        """Read `folder`/config.json. Raises FileNotFoundError or ValueError."""
        path = Path(folder) / "config.json"
        if not path.is_file():
            raise FileNotFoundError(f"draft head {folder}: no config.json there")
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path}: not valid JSON: {error}") from None
        if not isinstance(raw, dict):
            raise ValueError(f"{path}: must hold one JSON object, holds {type(raw).__name__}")
        try:
            return cls.from_dict(raw)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

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
        """Refuse a head made for another target.

        `target_config` is a transformers config (or a mapping). Raises ValueError that lists every
        difference in hidden size, vocabulary and number of layers.
        """
        get = _getter(target_config)
        wanted = {
            "hidden_size": self.target_hidden_size,
            "vocab_size": self.vocab_size,
            "num_hidden_layers": self.num_target_layers,
        }
        wrong = [
            f"{name}: the head was made for {ours}, the target has {get(name)}"
            for name, ours in wanted.items()
            if get(name) != ours
        ]
        if wrong:
            raise ValueError("this draft head does not fit the target: " + "; ".join(wrong))


def _flatten(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of `dflash_config` and of both rope spellings brought to the model's field names."""
    nested = raw.get("dflash_config") or {}
    if not isinstance(nested, Mapping):
        raise ValueError(f"dflash_config = {nested!r}: must be an object")
    for name, allowed in _NEUTRAL.items():
        for where, source in (("dflash_config.", nested), ("", raw)):
            value = source.get(name)
            if value not in allowed:
                raise ValueError(f"{where}{name} = {value!r}: not supported by this engine")
    layer_types = raw.get("layer_types")
    if layer_types is not None and any(kind != "full_attention" for kind in layer_types):
        raise ValueError(f"layer_types = {layer_types}: only full_attention is supported")

    flat = dict(raw)
    for name in (*_NESTED, *_NESTED_OR_TOP):
        if nested.get(name) is not None:
            flat[name] = nested[name]
    flat["causal"] = _causal(raw, nested)
    _fill_defaults(flat)
    return {name: value for name, value in flat.items() if value is not None}


def _fill_defaults(flat: dict[str, Any]) -> None:
    rope = {**(flat.get("rope_scaling") or {}), **(flat.get("rope_parameters") or {})}
    if "rope_theta" in rope:
        flat["rope_theta"] = rope.pop("rope_theta")
    for name in ("rope_theta", "rms_norm_eps"):
        if type(flat.get(name)) is int:
            flat[name] = float(flat[name])
    if "type" in rope:
        rope.setdefault("rope_type", rope.pop("type"))
    rope.setdefault("rope_type", "default")
    flat["rope_parameters"] = rope
    heads, hidden = flat.get("num_attention_heads"), flat.get("hidden_size")
    flat.setdefault("num_key_value_heads", heads)
    if flat.get("head_dim") is None and type(heads) is int and type(hidden) is int and heads > 0:
        flat["head_dim"] = hidden // heads
    if flat.get("target_hidden_size") is None:
        flat["target_hidden_size"] = hidden
    taps = flat.get("target_layer_ids")
    layers, target_layers = flat.get("num_hidden_layers"), flat.get("num_target_layers")
    if taps is None and type(layers) is int and type(target_layers) is int and layers > 0:
        flat["target_layer_ids"] = default_target_layer_ids(target_layers, layers)
    elif isinstance(taps, list):
        flat["target_layer_ids"] = tuple(taps)


def _causal(raw: Mapping[str, Any], nested: Mapping[str, Any]) -> bool:
    """One causal flag out of three spellings; none of them means a (bidirectional) DFlash head."""
    found: dict[str, bool] = {}
    for name in CAUSAL_SPELLINGS:
        prefix, _, key = name.rpartition(".")
        value = (nested if prefix else raw).get(key)
        if value is None:
            continue
        if type(value) is not bool:
            raise ValueError(f"{name} = {value!r}: must be true or false")
        found[name] = value
    if len(set(found.values())) > 1:
        pairs = ", ".join(f"{name} = {str(value).lower()}" for name, value in found.items())
        raise ValueError(f"the causal flag contradicts itself: {pairs}; make them equal")
    return next(iter(found.values()), False)


def _lines(error: ValidationError) -> list[str]:
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            lines.append(f"{name}: missing")
        elif name:
            lines.append(f"{name} = {problem['input']!r}: {message}")
        else:
            lines.append(message)
    return lines


def _getter(config: Any) -> Any:
    if isinstance(config, Mapping):
        return config.get
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return lambda name: getattr(text, name, None)
