"""A limit on the size of request bodies. No I/O."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 64 * 1024


class BodyLimit:
    """ASGI middleware that answers 413 once more than `MAX_BODY_BYTES` have come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY_BYTES:
                raise HTTPException(413, f"a body may have {MAX_BODY_BYTES} bytes")
            return message

        await self._app(scope, limited if scope["type"] == "http" else receive, send)
