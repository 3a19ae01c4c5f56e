"""`Verifier`: one target forward over every tree, and the target's own token at every node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.speculative.spec_utils import GrammarTree, build_grammar_vocab_mask

from jetspec_sglang.bridge.inputs import TreeVerifyInput
from jetspec_sglang.verify.choice import adjust_logits, choose_tokens
from jetspec_sglang.verify.links import child_links

if TYPE_CHECKING:
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan

    from jetspec_sglang.tree import Tree
    from jetspec_sglang.verify.accept import Accepted


class Verifier:
    """Runs the target on trees through SGLang's own worker."""

    def __init__(
        self,
        target_worker: TpModelWorker,
        mask: Callable[[ScheduleBatch, Tree], torch.Tensor | None],
    ) -> None:
        """`mask`: the ancestor mask as the device's attention takes it, if it takes one."""
        self._worker = target_worker
        self._mask = mask

    def forward(
        self,
        batch: ScheduleBatch,
        tree: Tree,
        node_tokens: torch.Tensor,
        positions: torch.Tensor,
        window: torch.Tensor,
        plan: KVLocPlan,
    ) -> LogitsProcessorOutput:
        """Logits [bs * B, vocab] and taps of every node.

        node_tokens int64 [bs, B]; positions int64 [bs * B]; window int64 [bs, >= B], slots.
        """
        verify = TreeVerifyInput.of(
            node_tokens, tree.parents, positions, self._mask(batch, tree), plan
        )
        batch.out_cache_loc = window[:, : tree.budget].reshape(-1)
        forward_batch, _ = verify.prepare_for_verify(batch, self._worker, defer_metadata_init=True)
        return self._worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True
        ).logits_output

    def choose(
        self,
        batch: ScheduleBatch,
        logits: torch.Tensor,
        tree: Tree,
        node_tokens: torch.Tensor,
        positions: torch.Tensor,
        grammar: GrammarTree | None,
        barrier: Callable[[], None] | None,
    ) -> torch.Tensor:
        """The target's own token at every node, int64 [bs, B]; adjusts `logits` in place."""
        mask = None
        if grammar is not None:
            mask = build_grammar_vocab_mask(
                reqs=batch.reqs,
                tree=grammar,
                sampling_info=batch.sampling_info,
                device=logits.device,
                barrier=barrier,
            )
        adjust_logits(batch, logits, tree, node_tokens, mask)
        return choose_tokens(
            self._worker.model_runner.sampler,
            batch.sampling_info,
            logits,
            positions,
            tree.budget,
            keep_logits=batch.return_logprob,
        )


def grammar_tree(batch: ScheduleBatch, tree: Tree, node_tokens: torch.Tensor) -> GrammarTree | None:
    """The trees as SGLang's grammars walk them, on the CPU; None without a grammar."""
    if not batch.has_grammar:
        return None
    return GrammarTree.from_host(*child_links(tree.cpu()), node_tokens.cpu())


def taps_of(logits_output: LogitsProcessorOutput) -> torch.Tensor:
    """The target's concatenated taps, [rows, K * hidden]."""
    if logits_output.hidden_states is None:
        raise RuntimeError(
            "the target returned no taps: its model class does not support JETSPEC "
            "(set_dflash_layers_to_capture is missing)"
        )
    return logits_output.hidden_states


def add_logprobs(
    batch: ScheduleBatch,
    logits_output: LogitsProcessorOutput,
    chosen: torch.Tensor,
    accepted: Accepted,
) -> None:
    """Log-probabilities of the committed tokens; rows past a path repeat its last node."""
    bs, budget = chosen.shape
    last = accepted.path.gather(1, (accepted.lens.to(torch.int64) - 1)[:, None])
    path = torch.where(accepted.path >= 0, accepted.path, last)
    index = torch.arange(bs, device=path.device)[:, None] * budget + path
    compute_spec_logprobs(batch, logits_output, chosen.reshape(-1), accept_index=index)
