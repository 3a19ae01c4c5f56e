"""`JetSpecWorker`: one round of draft, tree, verify and commit inside SGLang's scheduler.

Contract: built by SGLang next to the target's worker; `forward_batch_generation` serves prefill and
decode batches on the spec-v2 schema. The worker keeps no state per request. All such state is in
the batch's `DraftState` and in the KV pools. So retraction, abort and prefix caching need no extra
code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker

from jetspec_sglang import bridge
from jetspec_sglang.budget import BudgetPlan, TreeBudget
from jetspec_sglang.device.base import Reservation
from jetspec_sglang.metrics import Round, engine_metrics
from jetspec_sglang.round.calibration import calibrate
from jetspec_sglang.round.cost import RoundCost
from jetspec_sglang.round.engine import Engine, build_engine
from jetspec_sglang.round.state import DraftState
from jetspec_sglang.tree import Tree, build_tree
from jetspec_sglang.verify.accept import Accepted, accept
from jetspec_sglang.verify.verifier import Verifier, add_logprobs, grammar_tree, taps_of

if TYPE_CHECKING:
    from sglang.srt.managers.schedule_batch import ScheduleBatch
    from sglang.srt.managers.tp_worker import TpModelWorker
    from sglang.srt.mem_cache.kv_loc_plan import KVLocPlan
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)


class JetSpecWorker(BaseSpecWorker):
    """Serves batches with draft trees; also the preparer of each round's budget."""

    def __init__(
        self,
        server_args: ServerArgs,
        gpu_id: int,
        nccl_port: int,
        target_worker: TpModelWorker,
    ) -> None:
        super().__init__()
        self._target_worker = target_worker
        self.engine: Engine = build_engine(server_args, gpu_id, nccl_port, target_worker)
        self._draft_worker = self.engine.draft.worker
        self._ops = self.engine.ops
        self._drafter = self.engine.drafter
        self._verifier = Verifier(target_worker, self._ops.mask)
        self.budgets: TreeBudget = self.engine.budgets
        self.costs = RoundCost()
        self.rounds = 0
        self._ended: float | None = None  # the last step, if it was a round
        self._published = self.budgets.plan.uniform
        self._overlap = not server_args.disable_overlap_schedule

    # -- SGLang's life cycle ------------------------------------------------------------

    @property
    def spec_v2_attn_backends(self) -> tuple[Any, ...]:
        return (
            self._target_worker.model_runner.attn_backend,
            self.engine.draft.runner.attn_backend,
        )

    def weight_update_runners(self) -> list[tuple[str, Any]]:
        """For SGLang's weight checks; changes are refused (`weights`)."""
        return [("draft", self.engine.draft.runner)]

    def init_cuda_graphs(self) -> None:
        """The last start-up step: calibrate and tell the metrics what runs."""
        # The draft runner still sets up its eager path here; graphs are not captured.
        self._draft_worker.init_cuda_graphs(capture_decode_cuda_graph=False)
        self._publish(self.budgets.plan.uniform)
        metrics = engine_metrics()
        if self.engine.settings.calibration_seconds > 0:
            calibrate(self, self.engine.settings.calibration_seconds)
        if metrics is not None:
            metrics.describe(self.engine.info)
            metrics.requested(self.budgets.plan.uniform)
            for rows, seconds in self.costs.seconds.items():
                metrics.cost(rows, seconds)
            metrics.flush()

    # -- budget -------------------------------------------------------------------------

    def apply_plan(self, plan: BudgetPlan) -> None:
        """Use a validated budget plan from the next round on."""
        if self.budgets.apply(plan):
            logger.info("budget plan: %d, table %s", plan.uniform, dict(plan.table))
            metrics = engine_metrics()
            if metrics is not None:
                metrics.requested(plan.uniform)
                metrics.changed("api")
        self._publish(plan.uniform)

    def read_back(self) -> dict[str, Any]:
        """What `/server_info` shows of this engine."""
        return {
            **self.budgets.snapshot(),
            "width": self.engine.width,
            "block_size": self.engine.config.block_size,
            "rule": self.engine.settings.rule,
            "rounds": self.rounds,
            "round_cost_seconds": {str(k): v for k, v in sorted(self.costs.seconds.items())},
        }

    def prepare_round(self, batch: ScheduleBatch) -> int:
        """Fix the round's budget and reserve its slots; see `RoundPreparer`."""
        batch.maybe_evict_swa()
        budget = self.budgets.for_batch(batch.batch_size())
        if budget != self._published:
            self._publish(budget)
        width = self.window_width(budget)
        # Under overlap the committed length lags by the run in flight.
        width += self.engine.config.block_size if self._overlap else 0
        longest = batch.req_to_token_pool.req_to_token.shape[1]
        current = [req.kv.kv_allocated_len for req in batch.reqs]
        needed = [
            max(allocated, min(req.kv.kv_committed_len + width, longest))
            for req, allocated in zip(batch.reqs, current, strict=True)
        ]
        self._ops.reserve(batch, Reservation(current, needed))
        lens: list[int] = []
        for req in batch.reqs:
            req.decode_batch_idx += 1
            lens.append(req.kv.kv_committed_len)
        batch.seq_lens_cpu = torch.tensor(lens, dtype=torch.int64)
        batch.seq_lens_sum = sum(lens)
        return budget

    def _publish(self, budget: int) -> None:
        self._published = budget
        reserve = max(self.window_width(budget) for budget in self.budgets.plan.budgets)
        bridge.publish_budget(budget, reserve)

    def window_width(self, budget: int) -> int:
        """Slots a request's round at this budget writes."""
        return max(self.nodes(budget), self._drafter.block_width(budget))

    def nodes(self, budget: int) -> int:
        """Nodes a tree of this budget can have."""
        if self.engine.settings.rule == "chain" or self.engine.width == 1:
            return min(budget, self._drafter.depths(budget) + 1)
        return budget

    # -- steps --------------------------------------------------------------------------

    def forward_batch_generation(
        self,
        batch: ScheduleBatch,
        on_publish: Callable[[torch.Tensor], None] | None = None,
        grammar_barrier: Callable[[], None] | None = None,
        pp_proxy_tensors: Any = None,
    ) -> GenerationBatchResult:
        """One scheduler step: a prefill batch or one round."""
        with torch.inference_mode():
            if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
                return self._extend(batch, on_publish)
            return self._round(batch, on_publish, grammar_barrier)

    def _extend(
        self, batch: ScheduleBatch, on_publish: Callable[[torch.Tensor], None] | None
    ) -> GenerationBatchResult:
        """Prefill the target and feed every new position to the head."""
        self._ended = None
        result = self._target_worker.forward_batch_generation(
            batch, capture_hidden_mode=CaptureHiddenMode.FULL, return_kv_loc_plan=True
        )
        plan, result.kv_loc_plan = result.kv_loc_plan, None
        result.new_seq_lens = batch.seq_lens
        if on_publish is not None:
            on_publish(result.new_seq_lens)
        positions = torch.cat(
            [
                torch.arange(prefix, prefix + extend)
                for prefix, extend in zip(batch.prefix_lens, batch.extend_lens, strict=True)
            ]
        ).to(batch.device, non_blocking=True)
        draft = self.engine.draft
        taps = taps_of(result.logits_output)[: positions.numel()]
        bridge.feed_taps(draft, taps, positions, bridge.draft_slots(draft, plan))
        result.logits_output.hidden_states = None
        result.next_draft_input = self._state(result.next_token_ids, batch.seq_lens)
        return result

    def _round(
        self,
        batch: ScheduleBatch,
        on_publish: Callable[[torch.Tensor], None] | None,
        grammar_barrier: Callable[[], None] | None,
    ) -> GenerationBatchResult:
        clock = self._ops.now
        started = clock()
        waited = 0.0 if self._ended is None else started - self._ended
        state: DraftState = batch.spec_info
        budget = state.budget
        anchors = state.bonus_tokens.to(torch.int64)
        window = self._ops.window(batch, self.window_width(budget))
        plan = bridge.plan_window(self._target_worker, batch, window)

        candidates = self.candidates(batch, anchors, budget, plan)
        drafted = clock()
        tree = build_tree(*candidates, self.nodes(budget), self.engine.settings.rule)
        node_tokens = tree.tokens.clone()
        node_tokens[:, 0] = anchors
        grammar = grammar_tree(batch, tree, node_tokens)
        built = clock()

        positions = (batch.seq_lens[:, None] + tree.depths).reshape(-1)
        logits_output = self._verifier.forward(batch, tree, node_tokens, positions, window, plan)
        verified = clock()
        chosen = self._verifier.choose(
            batch,
            logits_output.next_token_logits,
            tree,
            node_tokens,
            positions,
            grammar,
            grammar_barrier,
        )
        accepted = accept(tree, chosen, candidates[0].shape[1])
        if batch.return_logprob:
            add_logprobs(batch, logits_output, chosen, accepted)
        new_seq_lens = batch.seq_lens + accepted.lens
        if on_publish is not None:
            on_publish(new_seq_lens)
        self._ops.compact(batch, window[:, : tree.budget], accepted)
        self._ops.feed(self.engine.draft, taps_of(logits_output), positions, plan, accepted)
        logits_output.hidden_states = None
        self._ended = done = clock()
        self._record(
            budget,
            tree,
            accepted,
            {
                "scheduler": waited,
                "draft": drafted - started,
                "tree": built - drafted,
                "verify": verified - built,
                "commit": done - verified,
            },
        )
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=accepted.tokens.reshape(-1),
            accept_lens=accepted.lens,
            can_run_cuda_graph=False,
            next_draft_input=self._state(accepted.bonus, new_seq_lens),
            speculative_num_draft_tokens=budget,
            speculative_output_stride=accepted.tokens.shape[1],
            new_seq_lens=new_seq_lens,
        )

    def candidates(
        self, batch: ScheduleBatch, anchors: torch.Tensor, budget: int, plan: KVLocPlan
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The head's candidates, tokens and log-probs [bs, D, W]; D is 0 at budget 1."""
        if self._drafter.depths(budget):
            return self._drafter.draft(batch, anchors, budget, plan)
        shape = (anchors.numel(), 0, self.engine.width)
        return (
            torch.empty(shape, dtype=torch.int64, device=anchors.device),
            torch.empty(shape, dtype=torch.float32, device=anchors.device),
        )

    # -- bookkeeping --------------------------------------------------------------------

    def _state(self, anchors: torch.Tensor, lens: torch.Tensor) -> DraftState:
        return DraftState(bonus_tokens=anchors, new_seq_lens=lens, preparer=self)

    def _record(
        self, budget: int, tree: Tree, accepted: Accepted, seconds: dict[str, float]
    ) -> None:
        self.rounds += 1
        metrics = engine_metrics()
        bs = accepted.lens.numel()
        round_ = Round(budget, bs, bs * tree.budget, int(accepted.lens.sum()), seconds)
        bucket, cost = self.costs.update(round_.rows, round_.total_seconds)
        if metrics is not None:
            path = accepted.path[:, 1:]
            metrics.record(round_, path[path > 0].tolist())
            metrics.cost(bucket, cost)
