"""The only module that uses private or unstable names of SGLang.

Checked against SGLang 0.5.23. `require_checked_version` refuses every other release, and
`tests/unit/test_sglang_bridge.py` checks the signatures used here against the installed one.
Everything public enough (registries, hooks, `BaseSpecWorker`, result fields) is imported where it
is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput

    from jetspec_sglang.device.base import DeviceOps
    from jetspec_sglang.tree import Tree

CHECKED_VERSION = "0.5.23"

SET_INTERNAL_STATE = "sglang.srt.managers.scheduler.Scheduler.set_internal_state"
DISABLE_OVERLAP = "sglang.srt.managers.scheduler.Scheduler.is_disable_overlap_for_batch"
READ_BACK = (
    "sglang.srt.managers.scheduler_components.internal_state"
    ".SchedulerInternalStateController._add_speculative"
)
VALIDATE_REQUEST = "sglang.srt.managers.tokenizer_manager.TokenizerManager._validate_one_request"
SHOWN_ARGUMENTS = "sglang.srt.server_args.ServerArgs.resolved_dict"
SHOWN_COMMAND_LINE = "sglang.srt.sampling.watermarking.core.redact_watermark_command_line"
_WEIGHTS = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
WEIGHT_CHANGES = tuple(
    f"{_WEIGHTS}.{name}"
    for name in (
        "update_weights_from_disk",
        "update_weights_from_distributed",
        "update_weights_from_tensor",
        "update_weights_from_ipc",
        "init_weights_update_group",
        "begin_weight_update",
        "check_weights",
    )
)
WEIGHT_RELEASES = tuple(
    f"sglang.srt.managers.tokenizer_manager.TokenizerManager.{name}_memory_occupation"
    for name in ("release", "resume")
)
_RESULTS = "sglang.srt.managers.scheduler_components.batch_result_processor"
RESOLVE_RUNS = f"{_RESULTS}.SchedulerBatchResultProcessor._resolve_spec_v2_tokens"
ADVANCE_GRAMMARS = f"{_RESULTS}.SchedulerBatchResultProcessor.advance_grammar_fsm"
CHECK_FINISH = "sglang.srt.managers.schedule_batch.Req.update_finish_state"
METRICS_INIT = "sglang.srt.observability.metrics_collector.SchedulerMetricsCollector.__init__"
METRICS_LOG = "sglang.srt.observability.metrics_collector.SchedulerMetricsCollector.log_stats"


def require_checked_version() -> None:
    """RuntimeError unless the installed SGLang is the one this module was checked against."""
    installed = version("sglang")
    if installed != CHECKED_VERSION:
        raise RuntimeError(
            f"jetspec-sglang needs sglang=={CHECKED_VERSION}, found {installed}; "
            f"install it with: pip install sglang=={CHECKED_VERSION}"
        )


def runs_jetspec() -> bool:
    """Whether this scheduler serves with JETSPEC. Only once SGLang has published its settings."""
    from sglang.srt.runtime_context import get_spec

    return get_spec().speculative_algorithm == "JETSPEC"


def target_config(server_args: ServerArgs) -> ModelConfig:
    """SGLang's reading of the target's config.json, before anything is loaded."""
    from sglang.srt.arg_groups.model_override_base import model_config_of

    return model_config_of(server_args)


def refuse_layers_with_state(config: ModelConfig) -> None:
    """ValueError for a target whose layers keep something else than keys and values."""
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.model_config import AttentionArch

    name = (config.hf_config.architectures or ["this target"])[0]
    if config.attention_arch == AttentionArch.SSM or mambaish_config(config) is not None:
        raise ValueError(
            f"--model-path: {name} has state-space or linear-attention layers; JETSPEC and the "
            "host platform serve targets with full attention (MHA or GQA) in every layer"
        )
    if config.attention_arch != AttentionArch.MHA:
        raise ValueError(
            f"--model-path: {name} has {config.attention_arch.name} layers; JETSPEC and the host "
            "platform serve targets with full attention (MHA or GQA) in every layer"
        )


def refuse_tokenizer_workers(server_args: ServerArgs) -> None:
    """ValueError for tokenizer processes in which SGLang loads no plugins."""
    workers = server_args.tokenizer_worker_num
    if workers not in (None, 1):
        raise ValueError(
            f"--tokenizer-worker-num {workers}: JETSPEC and the host platform allow 1; SGLang "
            "loads no plugins in more workers, so invalid requests would reach the scheduler "
            "unchecked"
        )


@dataclass(frozen=True, slots=True)
class DraftRunner:
    """SGLang's worker, runner and model of a draft head."""

    worker: TpModelWorker
    runner: ModelRunner
    model: Any


def build_draft_runner(
    *,
    server_args: ServerArgs,
    gpu_id: int,
    nccl_port: int,
    target_worker: TpModelWorker,
    attention_backend: str | None,
    causal: bool,
) -> DraftRunner:
    """Load the head through SGLang's own draft model and give it the right attention mask.

    Stock SGLang reads only the top-level `is_causal` and defaults to bidirectional, so the
    mask is set here, before any forward or graph capture.
    """
    from sglang.srt.layers.radix_attention import AttentionType
    from sglang.srt.speculative.draft_worker_common import build_draft_tp_worker
    from sglang.srt.speculative.spec_utils import draft_pp_context

    with draft_pp_context():
        bundle = build_draft_tp_worker(
            server_args=server_args,
            gpu_id=gpu_id,
            nccl_port=nccl_port,
            target_model_config=target_worker.model_runner.model_config,
            algo_label="JETSPEC",
            attention_backend_override=attention_backend,
        )
    model = bundle.draft_model
    attention_type = AttentionType.DECODER if causal else AttentionType.ENCODER_ONLY
    for layer in model.layers:
        layer.self_attn.attn.attn_type = attention_type
        if bundle.draft_model_runner.device == "cpu":
            # For bfloat16 SGLang takes a Triton kernel here without looking at the device.
            layer.self_attn.use_table_qk_norm_rope = False
    target_embed = target_worker.model_runner.model.get_input_embeddings()
    # A plain function: assigning the module would register it as the head's own.
    model.forward_embed = lambda ids: target_embed(ids)
    return DraftRunner(bundle.draft_worker, bundle.draft_model_runner, model)


def publish_budget(budget: int, reserve: int) -> None:
    """Make SGLang's metrics and KV estimates follow the budget in force.

    `budget` is what `sglang:spec_num_draft_tokens` and the internal state show; `reserve` is
    the slots a request may take in one round, which the scheduler's memory check doubles.
    """
    from sglang.srt.runtime_context import get_context, get_spec

    get_context().override("jetspec", speculative_num_draft_tokens=budget)
    get_spec()._set("max_speculative_num_draft_tokens", reserve)


def plan_window(worker: TpModelWorker, batch: ScheduleBatch, window: torch.Tensor) -> KVLocPlan:
    """SGLang's id plan for a round that writes `window`, slots int64 [bs, width]."""
    return worker.model_runner.kv_index_translator.plan(
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens_cpu,
        write_virtual=window.reshape(-1),
        read_extent=window.shape[1],
    )


def draft_block_batch(
    draft: DraftRunner,
    batch: ScheduleBatch,
    *,
    block_ids: torch.Tensor,
    positions: torch.Tensor,
    plan: KVLocPlan,
    spec_info: DFlashVerifyInput,
) -> ForwardBatch:
    """The head's forward over one block per request; ids and positions int64 [bs, width]."""
    from sglang.srt.model_executor.forward_batch_info import (
        CaptureHiddenMode,
        ForwardBatch,
        ForwardMode,
    )
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    bs, width = block_ids.shape
    lens_cpu = None if batch.seq_lens_cpu is None else batch.seq_lens_cpu + width
    forward_batch = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=bs,
        input_ids=block_ids.reshape(-1),
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        out_cache_loc=None,
        seq_lens_sum=None if lens_cpu is None else int(lens_cpu.sum()),
        seq_lens_cpu=lens_cpu,
        positions=positions.reshape(-1),
        spec_algorithm=SpeculativeAlgorithm.DFLASH,
        spec_info=spec_info,
        capture_hidden_mode=CaptureHiddenMode.NULL,
        global_num_token_non_padded_cpu=bs * width,
        can_run_decode_cuda_graph=batch.can_run_decode_cuda_graph,
    )
    plan.bind(forward_batch, draft.runner.kv_index_translator, cols=slice(0, width))
    return forward_batch


def write_draft_kv(
    draft: DraftRunner, context: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor
) -> None:
    """Project context rows into the head's KV pool.

    context [n, hidden] (already through `fc` and `hidden_norm`), positions int64 [n],
    slots int64 [n] of the head's pool.
    """
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    where = KVWriteLoc(slots, physical=True)
    pool = draft.runner.token_to_kv_pool
    for layer in draft.model.layers:
        attention = layer.self_attn
        k, v = attention.kv_proj_only(context)
        k = attention.apply_k_rope(positions, attention.apply_k_norm(k))
        shape = (-1, attention.num_kv_heads, attention.head_dim)
        pool.set_kv_buffer(attention.attn, where, k.reshape(shape), v.reshape(shape))


def draft_slots(draft: DraftRunner, plan: KVLocPlan) -> torch.Tensor:
    """The plan's write slots, int64 [n], as the head's pool indexes them."""
    return plan.write_ids(draft.runner.kv_index_translator)


def write_draft_kv_prefix(
    draft: DraftRunner,
    context: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    lens: torch.Tensor,
) -> None:
    """`write_draft_kv` with static shapes: of slots int64 [bs, width] only each request's
    first `lens` (int32 [bs]) are written."""
    pool = draft.runner.token_to_kv_pool
    for layer in draft.model.layers:
        attention = layer.self_attn
        k, v = attention.kv_proj_only(context)
        k = attention.apply_k_rope(positions, attention.apply_k_norm(k))
        shape = (-1, attention.num_kv_heads, attention.head_dim)
        pool.set_kv_buffer_prefix_valid(
            attention.attn, slots, lens, k.reshape(shape), v.reshape(shape)
        )


def allocate_slots(tree_cache: Any, count: int) -> torch.Tensor:
    """`count` free KV slots, int64, evicting cached prefixes when needed."""
    from sglang.srt.mem_cache.allocation import alloc_token_slots

    return alloc_token_slots(tree_cache, count)


def allocate_for_round(batch: ScheduleBatch, current: list[int], needed: list[int]) -> None:
    """SGLang's GPU allocation of slots up to `needed` per request, entered in its rows."""
    from sglang.srt.mem_cache.allocation import alloc_for_spec_decode

    current_cpu = torch.tensor(current, dtype=torch.int32)
    needed_cpu = torch.tensor(needed, dtype=torch.int32)
    alloc_for_spec_decode(
        batch.tree_cache,
        batch.req_to_token_pool,
        reqs=batch.reqs,
        req_pool_indices=batch.req_pool_indices,
        cur_kv_lens=current_cpu.to(batch.device, non_blocking=True),
        cur_kv_lens_cpu=current_cpu,
        nxt_kv_lens=needed_cpu.to(batch.device, non_blocking=True),
        nxt_kv_lens_cpu=needed_cpu,
        num_needed_tokens=sum(needed) - sum(current),
        batch=batch,
    )


def window_slots(batch: ScheduleBatch, width: int) -> torch.Tensor:
    """Slots int64 [bs, width] after each request's committed length, on the GPU."""
    from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func

    bs = batch.batch_size()
    flat = assign_extend_cache_locs_func(
        req_pool_indices=batch.req_pool_indices,
        req_to_token=batch.req_to_token_pool.req_to_token,
        start_offset=batch.seq_lens,
        end_offset=batch.seq_lens + width,
        batch_size=bs,
        draft_token_num=width,
        device=batch.device,
    )
    return flat.view(bs, width)


def move_accepted(
    batch: ScheduleBatch, window: torch.Tensor, path: torch.Tensor, lens: torch.Tensor
) -> None:
    """SGLang's GPU compaction of accepted rows; path int64 [bs, stride] padded with -1."""
    from sglang.srt.speculative.spec_utils import move_accept_tokens_to_target_kvcache

    bs, width = window.shape
    base = torch.arange(bs, device=path.device)[:, None] * width
    index = torch.where(path >= 0, base + path, path).to(torch.int32)
    batch.out_cache_loc = window.reshape(-1)
    move_accept_tokens_to_target_kvcache(batch, index, lens - 1, batch.token_to_kv_pool_allocator)


def verify_dummy(
    worker: TpModelWorker,
    batch: Any,
    tree: Tree,
    window: torch.Tensor,
    plan: KVLocPlan,
    ops: DeviceOps,
) -> torch.Tensor:
    """Logits [bs * B, vocab] of a verify forward outside the scheduler (calibration)."""
    from sglang.srt.model_executor.forward_batch_info import (
        CaptureHiddenMode,
        ForwardBatch,
        ForwardMode,
    )
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from jetspec_sglang.verify.inputs import TreeVerifyInput

    positions = (batch.seq_lens[:, None] + tree.depths).reshape(-1)
    tokens = tree.tokens.reshape(-1)
    forward_batch = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=tree.tokens.shape[0],
        input_ids=tokens,
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        out_cache_loc=None,
        seq_lens_sum=0,
        seq_lens_cpu=batch.seq_lens_cpu,
        positions=positions,
        spec_algorithm=SpeculativeAlgorithm.DFLASH,
        spec_info=TreeVerifyInput(
            draft_token=tokens,
            positions=positions,
            draft_token_num=tree.budget,
            custom_mask=ops.mask(batch, tree),
            tree_parents=tree.parents.reshape(-1),
        ),
        capture_hidden_mode=CaptureHiddenMode.FULL,
        global_num_token_non_padded_cpu=tokens.numel(),
        can_run_decode_cuda_graph=False,
    )
    plan.bind(forward_batch, worker.model_runner.kv_index_translator, cols=slice(0, tree.budget))
    out = worker.forward_batch_generation(batch=None, forward_batch=forward_batch, is_verify=True)
    return out.logits_output.next_token_logits
