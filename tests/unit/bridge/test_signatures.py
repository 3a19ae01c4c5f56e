"""The SGLang names that the bridge touches, against the installed release."""

import importlib
import inspect

import pytest

from jetspec_sglang import bridge

SIGNATURES = {
    "sglang.srt.speculative.draft_worker_common.build_draft_tp_worker": {
        "server_args",
        "gpu_id",
        "nccl_port",
        "target_model_config",
        "algo_label",
        "attention_backend_override",
    },
    "sglang.srt.mem_cache.kv_index_translator.KVIndexTranslator.plan": {
        "req_pool_indices",
        "seq_lens",
        "seq_lens_cpu",
        "write_virtual",
        "read_extent",
    },
    "sglang.srt.mem_cache.kv_loc_plan.KVLocPlan.bind": {"batch", "reader", "cols"},
    "sglang.srt.mem_cache.kv_loc_plan.KVLocPlan.write_ids": {"reader", "cols"},
    "sglang.srt.mem_cache.allocation.alloc_token_slots": {"tree_cache", "num_tokens"},
    "sglang.srt.mem_cache.allocation.alloc_for_spec_decode": {
        "tree_cache",
        "req_to_token_pool",
        "reqs",
        "req_pool_indices",
        "cur_kv_lens",
        "cur_kv_lens_cpu",
        "nxt_kv_lens",
        "nxt_kv_lens_cpu",
        "num_needed_tokens",
        "batch",
    },
    "sglang.srt.speculative.spec_utils.move_accept_tokens_to_target_kvcache": {
        "batch",
        "accept_index",
        "num_correct_drafts",
        "token_to_kv_pool_allocator",
    },
    "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool.set_kv_buffer_prefix_valid": {
        "layer",
        "loc_2d",
        "commit_lens",
        "cache_k",
        "cache_v",
    },
    "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool._store_kv_layer": {
        "layer_idx",
        "loc",
        "cache_k",
        "cache_v",
    },
    "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool._move_kv_cache_impl": {
        "tgt_loc",
        "src_loc",
    },
    "sglang.srt.models.dflash.DFlashDraftModel.project_target_hidden": {"target_hidden"},
    "sglang.srt.models.dflash.DFlashAttention.kv_proj_only": {"hidden_states"},
    "sglang.srt.models.dflash.DFlashAttention.apply_k_norm": {"k"},
    "sglang.srt.models.dflash.DFlashAttention.apply_k_rope": {"positions", "k"},
    "sglang.srt.layers.logprob_processor.compute_spec_logprobs": {
        "batch",
        "logits_output",
        "predict",
        "accept_index",
    },
    bridge.SET_INTERNAL_STATE: {"recv_req"},
    bridge.DISABLE_OVERLAP: {"batch", "last_batch"},
    bridge.READ_BACK: {"state"},
    bridge.VALIDATE_REQUEST: {"obj", "input_ids"},
    **{path: {"recv_req"} for path in bridge.WEIGHT_CHANGES},
    **{path: {"obj", "request"} for path in bridge.WEIGHT_RELEASES},
    bridge.ADVANCE_GRAMMARS: {"result", "batch"},
    bridge.RESOLVE_RUNS: {"result", "batch"},
    bridge.CHECK_FINISH: {"new_accepted_len"},
    bridge.METRICS_INIT: {"labels", "server_args"},
    bridge.METRICS_LOG: {"stats"},
}


def resolve(path):
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"{path} does not exist")


@pytest.mark.parametrize("path", SIGNATURES)
def test_each_name_exists_and_takes_what_it_is_given(path):
    parameters = set(inspect.signature(resolve(path)).parameters)
    assert SIGNATURES[path] <= parameters


def test_another_release_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr("jetspec_sglang.bridge.version.version", lambda name: "0.5.99")
    with pytest.raises(RuntimeError, match=r"sglang==0\.5\.23.*found 0\.5\.99.*pip install"):
        bridge.require_checked_version()


def test_the_installed_release_is_the_checked_one():
    bridge.require_checked_version()
