"""The HTTP application over a running service. No I/O of its own."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from jetspec_controller import __version__
from jetspec_controller.api import (
    control,
    decisions,
    health,
    page,
    pins,
    problems,
    simulate,
    targets,
)
from jetspec_controller.api.limits import BodyLimit
from jetspec_controller.service import Service

DESCRIPTION = "Sets the JetSpec tree budget of SGLang servers by their load."


class NumbersOrNull(JSONResponse):
    """JSON that writes NaN as null: a broken metric can be NaN."""

    def render(self, content: Any) -> bytes:
        return orjson.dumps(content)


def create_app(service: Service) -> FastAPI:
    """Routes of one resource lie in one module of this package."""
    app = FastAPI(
        title="jetspec-controller",
        version=__version__,
        description=DESCRIPTION,
        default_response_class=NumbersOrNull,
        responses=problems.responses(400, 413, 422, 500),
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.add_middleware(BodyLimit)
    problems.install(app)
    for module in (health, targets, decisions, pins, control, simulate, page):
        app.include_router(module.router)
    return app
