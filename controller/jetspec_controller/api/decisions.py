"""`/v1/decisions`: the last decisions, newest first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Annotated

from fastapi import APIRouter, Query

from jetspec_controller.api.deps import ServiceDep
from jetspec_controller.api.examples import SUMMARY, answers
from jetspec_controller.managed import DecisionSummary
from jetspec_controller.settings import TARGET_ID

router = APIRouter(prefix="/v1/decisions", tags=["decisions"])


@dataclass(frozen=True, slots=True)
class DecisionList:
    decisions: tuple[DecisionSummary, ...]


@router.get("", responses=answers(DecisionList((SUMMARY,))))
async def list_decisions(
    service: ServiceDep,
    target: Annotated[str | None, Query(pattern=TARGET_ID)] = None,
    since: Annotated[
        float, Query(ge=0, allow_inf_nan=False, description="Unix seconds, exclusive")
    ] = 0.0,
    limit: Annotated[int, Query(ge=1, le=5000)] = 100,
    changes: Annotated[
        bool, Query(description="only decisions that sent something to the server")
    ] = False,
) -> DecisionList:
    """Decisions of one or of all servers; `api.history` are kept for each server."""
    fleet = service.loop.fleet.values()
    histories = [
        reversed(managed.history) for managed in fleet if target in (None, managed.target.id)
    ]
    newest_first = heapq.merge(*histories, key=lambda entry: entry.at, reverse=True)
    recent = takewhile(lambda entry: entry.at > since, newest_first)
    wanted = (entry for entry in recent if not changes or entry.result is not None)
    return DecisionList(tuple(islice(wanted, limit)))
