"""`/v1/targets`: the servers under control, and why each has the budget it has."""

from __future__ import annotations

from fastapi import APIRouter

from jetspec_controller.api.deps import ServiceDep, TrackedDep
from jetspec_controller.api.examples import TARGET_DETAIL, TARGET_LIST, answers
from jetspec_controller.api.views import TargetDetail, TargetList, detail, summarise

router = APIRouter(prefix="/v1/targets", tags=["targets"])


@router.get("", responses=answers(TARGET_LIST))
async def list_targets(service: ServiceDep) -> TargetList:
    """Every server, its budget and the reason for it."""
    return TargetList(
        targets=tuple(summarise(service, managed) for managed in service.loop.fleet.values()),
        paused=service.state.paused,
        interval_s=service.settings.policy.interval_s,
        discovery_problems=service.loop.discovery.problems,
    )


@router.get("/{target_id}", responses=answers(TARGET_DETAIL, 404))
async def get_target(service: ServiceDep, managed: TrackedDep) -> TargetDetail:
    """One server: inputs, their ages, the candidates, the limits hit, and the outcome."""
    return detail(service, managed)
