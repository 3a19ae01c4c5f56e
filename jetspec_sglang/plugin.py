"""SGLang's plugin entry point: registers the algorithm, the host's attention and the hooks.

If an exception is raised here, SGLang only logs it and starts without the plugin. So `register`
records its success in `REGISTERED`, and no worker is built without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang.srt.model_executor.model_runner import ModelRunner

    from jetspec_sglang.host.attention import HostAttention

REGISTERED = False


def register() -> None:
    """Called by SGLang in every process, before it parses arguments. Idempotent."""
    global REGISTERED
    if REGISTERED:
        return
    from sglang.srt.arg_groups.choices import (
        add_attention_backend_choices,
        add_draft_attention_backend_choices,
    )
    from sglang.srt.layers.attention.attention_registry import register_attention_backend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from jetspec_sglang import bridge, metrics
    from jetspec_sglang.hooks import algorithm, control, finish, keys, requests, weights
    from jetspec_sglang.host.names import HOST_ATTENTION

    bridge.require_checked_version()
    register_attention_backend(HOST_ATTENTION)(_host_attention)
    add_attention_backend_choices([HOST_ATTENTION])
    add_draft_attention_backend_choices([HOST_ATTENTION])
    algorithm.register(lambda: REGISTERED)
    HookRegistry.register(bridge.SET_INTERNAL_STATE, control.set_internal_state, HookType.AROUND)
    HookRegistry.register(bridge.READ_BACK, control.add_read_back, HookType.AFTER)
    HookRegistry.register(bridge.DISABLE_OVERLAP, control.needs_sync, HookType.AROUND)
    HookRegistry.register(bridge.VALIDATE_REQUEST, requests.validate, HookType.AROUND)
    HookRegistry.register(bridge.ADVANCE_GRAMMARS, finish.note_ended_grammars, HookType.AROUND)
    HookRegistry.register(bridge.RESOLVE_RUNS, finish.cut_runs, HookType.AROUND)
    HookRegistry.register(bridge.CHECK_FINISH, finish.check_last_token, HookType.AROUND)
    HookRegistry.register(bridge.SHOWN_ARGUMENTS, keys.hide_fields, HookType.AFTER)
    HookRegistry.register(bridge.SHOWN_COMMAND_LINE, keys.hide_flags, HookType.AROUND)
    for target in bridge.WEIGHT_CHANGES:
        HookRegistry.register(target, weights.change, HookType.AROUND)
    for target in bridge.WEIGHT_RELEASES:
        HookRegistry.register(target, weights.release_or_resume, HookType.AROUND)
    HookRegistry.register(bridge.METRICS_INIT, metrics.collector_created, HookType.AFTER)
    HookRegistry.register(bridge.METRICS_LOG, metrics.stats_logged, HookType.AFTER)
    REGISTERED = True


def _host_attention(model_runner: ModelRunner) -> HostAttention:
    from jetspec_sglang.host.attention import HostAttention

    return HostAttention(model_runner)
