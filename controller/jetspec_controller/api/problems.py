"""Errors as `application/problem+json` (RFC 9457), every one of them. No I/O."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from jetspec_controller.service import BudgetNotAllowedError
from jetspec_controller.settings import SettingsError
from jetspec_controller.state_file import StateUnavailableError

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """What went wrong: `type` and `status` are for programs, `title` and `detail` for people."""

    type: str = Field("about:blank", examples=["urn:jetspec-controller:unknown-target"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field("", examples=["there is no target 'sglang-9'"])
    instance: str = Field("", examples=["/v1/targets/sglang-9"])


class ProblemError(Exception):
    """Raised by routes; becomes a problem document."""

    def __init__(self, status: int, kind: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, headers


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries for the problems a route may answer with."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                MEDIA_TYPE: {
                    "schema": Problem.model_json_schema(),
                    "example": {"title": HTTPStatus(status).phrase, "status": status},
                }
            },
        }
        for status in statuses
    }


def problem(
    request: Request, status: int, kind: str | None, detail: str, headers: Any = None
) -> JSONResponse:
    body = Problem(
        type="about:blank" if kind is None else f"urn:jetspec-controller:{kind}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
    )
    return JSONResponse(body.model_dump(), status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Turn every exception into a problem."""

    @app.exception_handler(ProblemError)
    async def own(request: Request, error: ProblemError) -> JSONResponse:
        return problem(request, error.status, error.kind, error.detail, error.headers)

    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return problem(request, error.status_code, None, str(error.detail), error.headers)

    # By status, because the framework's own errors are not of FastAPI's HTTPException.
    for status in HTTPStatus:
        if status >= 400 and status != 500:
            app.exception_handler(int(status))(http)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        parts = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        return problem(request, 422, "invalid-request", "; ".join(parts))

    @app.exception_handler(BudgetNotAllowedError)
    async def budget(request: Request, error: BudgetNotAllowedError) -> JSONResponse:
        return problem(request, 422, "budget-not-allowed", str(error))

    @app.exception_handler(StateUnavailableError)
    async def state(request: Request, error: StateUnavailableError) -> JSONResponse:
        return problem(request, 503, "state-unavailable", str(error), {"Retry-After": "30"})

    @app.exception_handler(SettingsError)
    async def settings(request: Request, error: SettingsError) -> JSONResponse:
        return problem(request, 422, "invalid-config", str(error))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        logger.exception("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(request, 500, None, "internal error of the controller; see its log")
