"""`/v1/targets/{id}/pin`: fix a server's budget for some time. Writes."""

from __future__ import annotations

from fastapi import APIRouter

from ..state_file import Pin
from .deps import ActorDep, ServiceDep, TrackedDep
from .examples import PIN, answers
from .problems import ProblemError, responses
from .views import PinRequest

router = APIRouter(prefix="/v1/targets/{target_id}/pin", tags=["pins"])


@router.put("", responses=answers(PIN, 401, 403, 404, 422, 503))
async def set_pin(
    service: ServiceDep, actor: ActorDep, tracked: TrackedDep, wanted: PinRequest
) -> Pin:
    """Pin the budget, replacing an earlier pin. In force from the next tick until it expires."""
    return service.pin(tracked, wanted.budget, wanted.ttl_s, wanted.reason, actor)


@router.delete("", status_code=204, responses=responses(401, 403, 404, 503))
async def remove_pin(service: ServiceDep, actor: ActorDep, tracked: TrackedDep) -> None:
    """End the pin now."""
    if not service.unpin(tracked.target.id, actor):
        raise ProblemError(404, "no-pin", f"{tracked.target.id} has no pin")
