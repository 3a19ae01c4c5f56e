"""HTTP calls with a deadline, a size limit, and a named fault for every failure. Does network I/O.

A call either returns a `Reply` with a 2xx status or raises `FetchError`, whose `fault` is one of
the core's faults. The deadline covers the whole call, so a peer that sends bytes slowly cannot keep
it open. Redirects are not followed: a credential must not go to a host that is not configured.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from jetspec_controller.core import Fault

MAX_BODY_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1 << 16
PROBLEM = "application/problem+json"


class FetchError(Exception):
    """A call without a usable result; `detail` is for people and contains no credential."""

    def __init__(self, fault: Fault, detail: str, status: int | None = None) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault
        self.detail = detail
        self.status = status  # of HTTP, where that is the fault


@dataclass(frozen=True, slots=True)
class Reply:
    """Body of a 2xx answer, and the peer's clock in Unix seconds if it sent a Date header."""

    body: bytes
    peer_time: float | None

    def json(self) -> Any:
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise FetchError(Fault.PARSE, f"body is not JSON: {error}") from error

    def text(self) -> str:
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise FetchError(Fault.PARSE, f"body is not UTF-8: {error}") from error


class HttpClient:
    """A pool of connections to servers that share TLS settings. Use as an async context."""

    def __init__(
        self, tls: ssl.SSLContext | None = None, *, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._tls = tls
        self._max_body_bytes = max_body_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=60.0, ssl=self._tls if self._tls is not None else True
        )
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Reply:
        return await self._call("GET", url, timeout_s, headers=headers, params=params)

    async def post(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        form: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send `json`, or `form` as application/x-www-form-urlencoded."""
        body = {"data": form} if form is not None else {"json": json}
        return await self._call("POST", url, timeout_s, headers=headers, **body)

    async def send(
        self, method: str, url: str, *, timeout_s: float, headers: Mapping[str, str], json: Any
    ) -> Reply:
        """Any other method, with a JSON body unless it is None."""
        return await self._call(method, url, timeout_s, headers=headers, json=json)

    async def _call(self, method: str, url: str, timeout_s: float, **options: Any) -> Reply:
        if self._session is None:
            raise RuntimeError("HttpClient is used outside its async context")
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(method, url, allow_redirects=False, **options) as response,
            ):
                body = await self._read(response)
        except TimeoutError:
            raise FetchError(Fault.TIMEOUT, f"no answer within {timeout_s:g} s") from None
        except aiohttp.ClientConnectionError as error:
            raise FetchError(Fault.DOWN, str(error) or type(error).__name__) from error
        except aiohttp.ClientPayloadError as error:
            raise FetchError(Fault.DOWN, f"the answer was cut off: {error}") from error
        except aiohttp.InvalidURL as error:
            raise FetchError(
                Fault.HTTP, "this is not a valid URL; check its host and port"
            ) from error
        except aiohttp.ClientError as error:
            raise FetchError(Fault.HTTP, str(error) or type(error).__name__) from error
        if response.status in (401, 403):
            said = f": {_problem(body)}" if response.content_type == PROBLEM else ""
            detail = f"HTTP {response.status}{said}"
            raise FetchError(Fault.UNAUTHORISED, detail, response.status)
        if not 200 <= response.status < 300:
            said = _problem(body) if response.content_type == PROBLEM else _excerpt(body)
            raise FetchError(Fault.HTTP, f"HTTP {response.status}: {said}", response.status)
        return Reply(body, _peer_time(response.headers.get("Date")))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_chunked(CHUNK_BYTES):
            size += len(chunk)
            if size > self._max_body_bytes:
                raise FetchError(Fault.PARSE, f"body is over {self._max_body_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)


def _excerpt(body: bytes) -> str:
    return " ".join(body[:200].decode(errors="replace").split())


def _problem(body: bytes) -> str:
    """What an RFC 9457 document says to a person."""
    try:
        document = orjson.loads(body)
        return str(document.get("detail") or document["title"])
    except (orjson.JSONDecodeError, AttributeError, KeyError):
        return _excerpt(body)


def _peer_time(header: str | None) -> float | None:
    if header is None:
        return None
    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None
