"""`/v1/pause`, `/v1/resume`, `/v1/config/reload`: the whole controller. Writes."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from jetspec_controller.api.deps import ActorDep, ServiceDep
from jetspec_controller.api.examples import answers

router = APIRouter(prefix="/v1", tags=["control"])


class PauseState(BaseModel):
    paused: bool


class Reloaded(BaseModel):
    config: str
    restart_needed: tuple[str, ...] = Field(
        description="keys that changed since the start and wait for a restart"
    )


@router.post("/pause", responses=answers(PauseState(paused=True), 401, 403, 503))
async def pause(service: ServiceDep, actor: ActorDep) -> PauseState:
    """Continue to observe and decide, but apply nothing. The pause survives a restart."""
    service.set_paused(True, actor)
    return PauseState(paused=True)


@router.post("/resume", responses=answers(PauseState(paused=False), 401, 403, 503))
async def resume(service: ServiceDep, actor: ActorDep) -> PauseState:
    """Apply decisions again."""
    service.set_paused(False, actor)
    return PauseState(paused=False)


RELOADED = Reloaded(config="9e0e1fa15e9c", restart_needed=("api.port",))


@router.post("/config/reload", responses=answers(RELOADED, 401, 403, 422))
async def reload(service: ServiceDep, actor: ActorDep) -> Reloaded:
    """Reload the configuration file. If anything is wrong, the old configuration stays in force."""
    waiting = await service.reload(actor)
    return Reloaded(config=service.settings.digest, restart_needed=waiting)
