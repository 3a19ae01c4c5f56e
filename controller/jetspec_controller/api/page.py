"""The page `/` and its files. All come from this server: the page sends no request to another host.

Plotly's own bundle comes from the installed package. Reads and compresses those files once, in its
own thread.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Header, Response

from jetspec_controller.api.problems import ProblemError

router = APIRouter(include_in_schema=False)

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # plotly sets style attributes on its SVG
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
ASSETS = {
    "app.js": ("jetspec_controller", "page/app.js", "text/javascript"),
    "charts.js": ("jetspec_controller", "page/charts.js", "text/javascript"),
    "style.css": ("jetspec_controller", "page/style.css", "text/css"),
    "plotly.js": ("plotly", "package_data/plotly.min.js", "text/javascript"),
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, compressed once, with the tag that browsers use to revalidate it."""

    packed: bytes
    media_type: str
    tag: str


@cache
def asset(name: str) -> Asset:
    package, path, media_type = ASSETS[name]
    content = files(package).joinpath(path).read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(gzip.compress(content, 6, mtime=0), media_type, f'"{digest}"')


@router.get("/")
def page() -> Response:
    """Speed versus budget, live."""
    html = files("jetspec_controller").joinpath("page/index.html").read_text()
    return Response(html, media_type="text/html", headers={**HEADERS, "Cache-Control": "no-cache"})


@router.get("/page/{name}")
def page_asset(
    name: str,
    accept_encoding: Annotated[str, Header()] = "",
    if_none_match: Annotated[str, Header()] = "",
) -> Response:
    if name not in ASSETS:
        raise ProblemError(404, "unknown-asset", f"there is no {name!r}")
    found = asset(name)
    headers = {**HEADERS, "ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if if_none_match == found.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
        return Response(found.packed, media_type=found.media_type, headers=headers)
    return Response(gzip.decompress(found.packed), media_type=found.media_type, headers=headers)
