"""Refuses to change or release the weights of a running server, because it keeps copies of them.

The host platform packs every weight at the start, and JETSPEC scores drafts with rows of the
target's output matrix: a change of the weights would not change these copies, and SGLang's update
of an algorithm's draft weights stops the scheduler. The weight checker's `reset_tensors` overwrites
weights too; its other actions only read. The answer is SGLang's own, with `success` false and HTTP
400.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RESET = "reset_tensors"
"""The weight checker's action that overwrites the weights."""
MESSAGE = (
    "a server with JETSPEC or on the host platform cannot change its weights: "
    "start another server with the new ones"
)


def change(original: Callable[..., Any], updater: Any, recv_req: Any) -> Any:
    """AROUND hook on the scheduler's weight updates."""
    from sglang.srt.managers import io_struct

    if getattr(recv_req, "action", RESET) != RESET or not _keeps_copies(updater.draft_worker):
        return original(updater, recv_req)
    answer = getattr(io_struct, type(recv_req).__name__.replace("Input", "Output"))
    return answer(success=False, message=MESSAGE)


def release_or_resume(
    original: Callable[..., Any], manager: Any, obj: Any, request: Any = None
) -> Any:
    """AROUND hook on the tokenizer manager, whose caller turns an error into HTTP 400."""
    if manager.server_args.speculative_algorithm == "JETSPEC" or _on_host():
        raise ValueError(MESSAGE)
    return original(manager, obj, request)


def _keeps_copies(draft_worker: Any) -> bool:
    from jetspec_sglang.round.worker import JetSpecWorker

    return isinstance(draft_worker, JetSpecWorker) or _on_host()


def _on_host() -> bool:
    from jetspec_sglang.host.activation import activate

    return activate() is not None
