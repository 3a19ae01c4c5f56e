"""Forward passes that SGLang's scheduler does not prepare: the draft block, the dummy verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput

    from jetspec_sglang.bridge.draft import DraftRunner
    from jetspec_sglang.bridge.inputs import TreeVerifyInput


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


def verify_dummy(
    worker: TpModelWorker, batch: Any, verify: TreeVerifyInput, plan: KVLocPlan
) -> torch.Tensor:
    """Logits [bs * B, vocab] of a verify forward outside the scheduler (calibration)."""
    from sglang.srt.model_executor.forward_batch_info import (
        CaptureHiddenMode,
        ForwardBatch,
        ForwardMode,
    )
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    forward_batch = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=batch.seq_lens.numel(),
        input_ids=verify.draft_token,
        req_pool_indices=batch.req_pool_indices,
        seq_lens=batch.seq_lens,
        out_cache_loc=None,
        seq_lens_sum=0,
        seq_lens_cpu=batch.seq_lens_cpu,
        positions=verify.positions,
        spec_algorithm=SpeculativeAlgorithm.DFLASH,
        spec_info=verify,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        global_num_token_non_padded_cpu=verify.draft_token.numel(),
        can_run_decode_cuda_graph=False,
    )
    columns = slice(0, verify.budget)
    plan.bind(forward_batch, worker.model_runner.kv_index_translator, cols=columns)
    out = worker.forward_batch_generation(batch=None, forward_batch=forward_batch, is_verify=True)
    return out.logits_output.next_token_logits
