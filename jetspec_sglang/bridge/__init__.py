"""The one place that touches private or volatile names of SGLang.

Checked against one release (`version`); `tests/unit/bridge` checks the signatures used here against
the installed one. Everything public enough (registries, hooks, `BaseSpecWorker`, result fields) is
imported where it is used. Imports no other room of this package.
"""

from jetspec_sglang.bridge.draft import (
    DraftRunner,
    build_draft_runner,
    draft_slots,
    feed_taps,
    write_draft_kv_prefix,
)
from jetspec_sglang.bridge.forward import draft_block_batch, verify_dummy
from jetspec_sglang.bridge.hook_points import (
    ADVANCE_GRAMMARS,
    CHECK_FINISH,
    DISABLE_OVERLAP,
    METRICS_INIT,
    METRICS_LOG,
    READ_BACK,
    RESOLVE_RUNS,
    SET_INTERNAL_STATE,
    SHOWN_ARGUMENTS,
    SHOWN_COMMAND_LINE,
    VALIDATE_REQUEST,
    WEIGHT_CHANGES,
    WEIGHT_RELEASES,
)
from jetspec_sglang.bridge.launch import (
    Speculation,
    refuse_layers_with_state,
    refuse_tokenizer_workers,
    runs_jetspec,
    speculation,
    target_config,
)
from jetspec_sglang.bridge.slots import (
    allocate_for_round,
    allocate_slots,
    move_accepted,
    plan_window,
    publish_budget,
    window_slots,
)
from jetspec_sglang.bridge.version import CHECKED_VERSION, require_checked_version

__all__ = [
    "ADVANCE_GRAMMARS",
    "CHECKED_VERSION",
    "CHECK_FINISH",
    "DISABLE_OVERLAP",
    "METRICS_INIT",
    "METRICS_LOG",
    "READ_BACK",
    "RESOLVE_RUNS",
    "SET_INTERNAL_STATE",
    "SHOWN_ARGUMENTS",
    "SHOWN_COMMAND_LINE",
    "VALIDATE_REQUEST",
    "WEIGHT_CHANGES",
    "WEIGHT_RELEASES",
    "DraftRunner",
    "Speculation",
    "allocate_for_round",
    "allocate_slots",
    "build_draft_runner",
    "draft_block_batch",
    "draft_slots",
    "feed_taps",
    "move_accepted",
    "plan_window",
    "publish_budget",
    "refuse_layers_with_state",
    "refuse_tokenizer_workers",
    "require_checked_version",
    "runs_jetspec",
    "speculation",
    "target_config",
    "verify_dummy",
    "window_slots",
    "write_draft_kv_prefix",
]
