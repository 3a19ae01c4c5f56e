"""`/livez`, `/readyz`, `/metrics`, `/version`: for probes, Prometheus and people. Open to all."""

from __future__ import annotations

import platform

from fastapi import APIRouter, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import BaseModel

from jetspec_controller import __version__
from jetspec_controller.api.deps import ServiceDep
from jetspec_controller.api.examples import answers
from jetspec_controller.api.problems import ProblemError

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: str = "ok"


class Version(BaseModel):
    version: str
    python: str
    config: str
    restart_needed: tuple[str, ...] = ()


@router.get("/livez", responses=answers(Health(), 503))
async def livez(service: ServiceDep) -> Health:
    """Whether the control loop runs. If it does not, restart the controller."""
    if not service.alive:
        raise ProblemError(503, "loop-stalled", "the control loop has not ticked lately")
    return Health()


@router.get("/readyz", responses=answers(Health(), 503))
async def readyz(service: ServiceDep) -> Health:
    """Whether any server has been read successfully since the start."""
    if not service.ready:
        raise ProblemError(503, "nothing-observed", "no server has been observed yet")
    return Health()


EXPOSITION = """# HELP jetspec_controller_targets Servers under control
# TYPE jetspec_controller_targets gauge
jetspec_controller_targets 2.0
"""


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": EXPOSITION}}}
    },
)
async def metrics(service: ServiceDep) -> Response:
    """The controller's own metrics in Prometheus' text format."""
    body = generate_latest(service.metrics.registry)
    return Response(body, media_type=CONTENT_TYPE_PLAIN_0_0_4)


RUNNING = Version(version=__version__, python="3.11.2", config="9e0e1fa15e9c")


@router.get("/version", responses=answers(RUNNING))
async def version(service: ServiceDep) -> Version:
    """What is running, and under which configuration."""
    return Version(
        version=__version__,
        python=platform.python_version(),
        config=service.settings.digest,
        restart_needed=service.restart_needed,
    )
