"""Runtime control through SGLang's own `/set_internal_state` and `/server_info`.

The plugin registers two hooks on the scheduler. Both run between steps of the scheduler's loop. So
a change takes effect when the next round is prepared, on every TP rank at the same time. A body is
applied completely or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetspec_sglang.budget import BudgetRefusedError

if TYPE_CHECKING:
    from sglang.srt.managers.io_struct import SetInternalStateReq, SetInternalStateReqOutput
    from sglang.srt.managers.scheduler import Scheduler

    from jetspec_sglang.round.worker import JetSpecWorker

logger = logging.getLogger(__name__)
PREFIX = "jetspec_"


def set_internal_state(
    original: Callable[..., SetInternalStateReqOutput],
    scheduler: Scheduler,
    recv_req: SetInternalStateReq,
) -> SetInternalStateReqOutput:
    """AROUND hook: take the `jetspec_` keys, leave the rest to SGLang."""
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    requested = recv_req.server_args
    ours = {key: value for key, value in requested.items() if key.startswith(PREFIX)}
    if not ours:
        return original(scheduler, recv_req)
    worker = _worker(scheduler)
    if worker is None:
        logger.warning("%s refused: this server does not run JETSPEC", ", ".join(ours))
        return SetInternalStateReqOutput(updated=False)
    try:
        plan = worker.budgets.validate(ours)
    except BudgetRefusedError as refusal:
        logger.warning("budget change refused: %s", refusal)
        return SetInternalStateReqOutput(updated=False)
    if len(ours) < len(requested):
        rest = type(recv_req)(
            server_args={key: value for key, value in requested.items() if key not in ours}
        )
        answer = original(scheduler, rest)
        if not answer.updated:
            others = ", ".join(key for key in requested if key not in ours)
            worker.budgets.last_refusal = f"nothing changed: SGLang refused {others}"
            return answer
    worker.apply_plan(plan)
    return SetInternalStateReqOutput(updated=True)


def add_read_back(result: None, controller: Any, state: dict[str, Any]) -> None:
    """AFTER hook: add `jetspec` to a rank's internal state."""
    worker = _worker(controller.scheduler)
    if worker is not None:
        state["jetspec"] = worker.read_back()


def needs_sync(
    original: Callable[..., bool], scheduler: Scheduler, batch: Any, last_batch: Any
) -> bool:
    """AROUND hook on the overlap decision: penalties and custom logit processors read every
    committed token, so a batch that has them waits for the previous round's result."""
    if original(scheduler, batch, last_batch):
        return True
    return bool(
        batch
        and _worker(scheduler) is not None
        and batch.forward_mode.is_decode()
        and batch.sampling_info is not None
        and (
            batch.sampling_info.penalizer_orchestrator.is_required
            or batch.sampling_info.has_custom_logit_processor
        )
        and len(scheduler.result_queue) > 0
    )


def _worker(scheduler: Scheduler) -> JetSpecWorker | None:
    from jetspec_sglang.round.worker import JetSpecWorker

    worker = getattr(scheduler, "draft_worker", None)
    return worker if isinstance(worker, JetSpecWorker) else None
