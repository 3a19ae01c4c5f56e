"""`/v1/targets/{id}/pin`: fix a server's budget for some time. Writes."""

from __future__ import annotations

from fastapi import APIRouter

from jetspec_controller.api.deps import ActorDep, ServiceDep, TrackedDep
from jetspec_controller.api.examples import PIN, answers
from jetspec_controller.api.problems import ProblemError, responses
from jetspec_controller.api.views import PinRequest
from jetspec_controller.state_file import Pin

router = APIRouter(prefix="/v1/targets/{target_id}/pin", tags=["pins"])


@router.put("", responses=answers(PIN, 401, 403, 404, 422, 503))
async def set_pin(
    service: ServiceDep, actor: ActorDep, managed: TrackedDep, wanted: PinRequest
) -> Pin:
    """Pin the budget, replacing an earlier pin. In force from the next tick until it expires."""
    return service.pin(managed, wanted.budget, wanted.ttl_s, wanted.reason, actor)


@router.delete("", status_code=204, responses=responses(401, 403, 404, 503))
async def remove_pin(service: ServiceDep, actor: ActorDep, managed: TrackedDep) -> None:
    """End the pin now."""
    if not service.unpin(managed.target.id, actor):
        raise ProblemError(404, "no-pin", f"{managed.target.id} has no pin")
