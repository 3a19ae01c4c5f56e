"""The package that SGLang imports instead of all of its models."""

import importlib
import pkgutil

from sglang.srt.models.dflash import DFlashDraftModel
from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.models.registry import import_model_classes

from jetspec_sglang import families


def test_sglang_finds_the_families_and_the_draft_model() -> None:
    found = import_model_classes(families.PACKAGE, strict=True)
    assert found["LlamaForCausalLM"] is LlamaForCausalLM
    assert found["DFlashDraftModel"] is DFlashDraftModel
    assert {"Qwen2ForCausalLM", "Qwen3ForCausalLM"} <= found.keys()


def test_every_module_is_one_of_sglangs_own() -> None:
    for module in pkgutil.iter_modules(families.__path__):
        ours = importlib.import_module(f"{families.PACKAGE}.{module.name}")
        theirs = importlib.import_module(f"sglang.srt.models.{module.name}")
        assert ours.EntryClass is theirs.EntryClass
