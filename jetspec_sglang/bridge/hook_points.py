"""Where hooks attach: dotted names of SGLang's methods. Pure data."""

from __future__ import annotations

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
