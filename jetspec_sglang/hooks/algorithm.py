"""`JetSpecAlgorithm`: JETSPEC as SGLang's algorithm registry sees it.

It answers SGLang's questions about the algorithm and checks the server's arguments at start-up. It
refuses what cannot work, and names the flag, its value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from jetspec_sglang import bridge
from jetspec_sglang.budget import DEFAULT_MAX_BUDGET, TreeBudget
from jetspec_sglang.head.check import check_head, read_target
from jetspec_sglang.settings import MAX_BUDGET_LIMIT, Settings

if TYPE_CHECKING:
    from sglang.srt.managers.overlap_utils import FutureMap
    from sglang.srt.server_args import ServerArgs

NAME = "JETSPEC"
DEFAULT_WIDTH = 8
MAX_WIDTH = 32
DEFAULT_MAX_RUNNING = 48

# Flags that change what a round would have to do and that it does not do.
_UNSUPPORTED: tuple[tuple[str, Any, str], ...] = (
    ("enable_lora", True, "--enable-lora"),
    ("lora_paths", None, "--lora-paths"),
    ("enable_mixed_chunk", True, "--enable-mixed-chunk"),
    ("enable_dp_attention", True, "--enable-dp-attention"),
    ("enable_two_batch_overlap", True, "--enable-two-batch-overlap"),
    ("enable_hierarchical_cache", True, "--enable-hierarchical-cache"),
    ("enable_pdmux", True, "--enable-pdmux"),
    ("enable_watermark", True, "--enable-watermark"),
    ("speculative_adaptive", True, "--speculative-adaptive"),
    ("speculative_draft_window_size", None, "--speculative-draft-window-size"),
    ("speculative_use_rejection_sampling", True, "--speculative-use-rejection-sampling"),
)


class JetSpecAlgorithm(CustomSpecAlgo):
    """The registry's view; SGLang's DFLASH machinery carries taps, draft KV and verify."""

    def is_dflash_family(self) -> bool:
        # Taps, the head's KV in pool sizing, stateful decode preparation.
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    def get_num_tokens_per_req_for_target_verify(
        self, num_draft_tokens: int, is_draft_worker: bool
    ) -> int:
        return num_draft_tokens

    def resolve_max_speculative_num_draft_tokens(self, server_args: ServerArgs) -> int | None:
        from sglang.srt.arg_groups.overrides import resolving_view

        return resolving_view(server_args).speculative_num_draft_tokens

    # Asked of every algorithm by the scheduler, missing on the base class of 0.5.23.
    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> FutureMap:
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(
            device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay
        )

    def handle_server_args(self, server_args: ServerArgs) -> None:
        """Fill in the arguments that the operator did not set. Steps stay 1, because the
        reservation depends only on B."""
        server_args.speculative_num_steps = 1
        if server_args.speculative_eagle_topk is None:
            server_args.speculative_eagle_topk = DEFAULT_WIDTH
        if server_args.speculative_num_draft_tokens is None:
            server_args.speculative_num_draft_tokens = DEFAULT_MAX_BUDGET[_device(server_args)]
        if server_args.max_running_requests is None:
            server_args.max_running_requests = DEFAULT_MAX_RUNNING
        overlap = Settings.from_environment().overlap
        if overlap is None:
            # The host is one device and has no launch latency to hide.
            overlap = _device(server_args) != "cpu" and not server_args.disable_overlap_schedule
        server_args.disable_overlap_schedule = not overlap


def register(is_complete: Callable[[], bool]) -> None:
    """Enter JETSPEC in SGLang's registry. No worker is built unless `is_complete` by then."""

    @SpeculativeAlgorithm.register(
        NAME,
        supports_overlap=True,
        validate_server_args=validate_server_args,
        spec_class=JetSpecAlgorithm,
    )
    def _worker_class(server_args: ServerArgs) -> type:
        from jetspec_sglang.round.worker import JetSpecWorker

        if not is_complete():
            raise RuntimeError(
                "the jetspec plugin did not register; see the first error in this log, or run "
                "`jetspec doctor`"
            )
        return JetSpecWorker


def validate_server_args(server_args: ServerArgs) -> None:
    """Refuse arguments that JETSPEC cannot serve. Raises ValueError with one line."""
    settings = Settings.from_environment()
    if not server_args.speculative_draft_model_path:
        raise ValueError(
            "JETSPEC needs a draft head: --speculative-draft-model-path <folder or hub id>"
        )
    for attribute, refused, flag in _UNSUPPORTED:
        value = getattr(server_args, attribute, None)
        if value and (refused is None or value == refused):
            raise ValueError(f"JETSPEC does not support {flag} (given: {value!r}); leave it out")
    for attribute in ("tp_size", "pp_size", "dp_size"):
        value = getattr(server_args, attribute, 1)
        if value not in (None, 1):
            raise ValueError(f"--{attribute.replace('_', '-')} {value}: JETSPEC allows 1")
    if server_args.disaggregation_mode not in (None, "null"):
        raise ValueError(
            f"--disaggregation-mode {server_args.disaggregation_mode}: JETSPEC allows null"
        )
    if server_args.page_size not in (None, 1):
        raise ValueError(
            f"--page-size {server_args.page_size}: JETSPEC allows 1; a tree's rows are single slots"
        )
    bridge.refuse_tokenizer_workers(server_args)
    steps = server_args.speculative_num_steps
    if steps not in (None, 1):
        raise ValueError(f"--speculative-num-steps {steps}: JETSPEC drafts in one step, allows 1")
    _check_range("--speculative-eagle-topk", server_args.speculative_eagle_topk, MAX_WIDTH)
    _check_range(
        "--speculative-num-draft-tokens",
        server_args.speculative_num_draft_tokens,
        MAX_BUDGET_LIMIT,
    )
    device = _device(server_args)
    max_budget = server_args.speculative_num_draft_tokens or DEFAULT_MAX_BUDGET[device]
    TreeBudget.from_settings(settings, device, max_budget)
    # The worker checks again; here what is wrong stops the server before the target is loaded.
    bridge.refuse_layers_with_state(bridge.target_config(server_args))
    target = read_target(server_args.model_path)
    check_head(server_args.speculative_draft_model_path, target).require()


def _check_range(flag: str, value: int | None, largest: int) -> None:
    if value is not None and not 1 <= value <= largest:
        raise ValueError(f"{flag} {value}: must be from 1 to {largest}")


def _device(server_args: ServerArgs) -> str:
    device = str(server_args.device).split(":")[0]
    if device not in DEFAULT_MAX_BUDGET:
        raise ValueError(f"--device {device}: JETSPEC runs on {', '.join(DEFAULT_MAX_BUDGET)}")
    return device
