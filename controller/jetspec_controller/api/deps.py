"""Dependencies of routes: the service, a target by its id, and the name of the writer. No I/O."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from jetspec_controller.api.problems import ProblemError
from jetspec_controller.audit import Event
from jetspec_controller.managed import ManagedTarget
from jetspec_controller.service import Service
from jetspec_controller.settings import TARGET_ID
from jetspec_controller.tokens import ANYONE

BEARER = HTTPBearer(auto_error=False, description="A token of the controller's token file.")


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


def get_managed(
    service: ServiceDep,
    target_id: Annotated[str, Path(pattern=TARGET_ID, examples=["127.0.0.1:30000"])],
) -> ManagedTarget:
    managed = service.managed(target_id)
    if managed is None:
        raise ProblemError(404, "unknown-target", f"there is no target {target_id!r}")
    return managed


TrackedDep = Annotated[ManagedTarget, Depends(get_managed)]


def get_actor(
    request: Request,
    service: ServiceDep,
    presented: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)],
) -> str:
    actor = service.tokens.actor(None if presented is None else presented.credentials)
    if actor is None:
        service.audit.write(Event.WRITE_DENIED, path=request.url.path)
        raise ProblemError(
            401,
            "token-required",
            "writes need `Authorization: Bearer …` with one of the controller's tokens",
            **{"WWW-Authenticate": "Bearer"},
        )
    if actor == ANYONE and _foreign(request):
        service.audit.write(Event.WRITE_DENIED, path=request.url.path)
        raise ProblemError(403, "foreign-origin", "a page of another origin may not write here")
    return actor


def _foreign(request: Request) -> bool:
    """Whether a browser sends this request for a page of another origin. Without tokens, only this
    check stops such a page from writing.
    """
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


ActorDep = Annotated[str, Depends(get_actor)]
