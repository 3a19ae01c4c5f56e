"""`jetspec-controller pin|unpin|pause|resume`: the actions of the page, from a shell. Does network
I/O.

The token comes from a token file or `JETSPEC_CONTROLLER_TOKEN`; without either, no token is sent. A
controller with `--insecure` accepts that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jetspec_controller.core import Fault
from jetspec_controller.http_client import FetchError, HttpClient
from jetspec_controller.settings import TARGET_ID, SettingsError
from jetspec_controller.tokens import read_tokens

TIMEOUT_S = 10.0
TOKEN_VARIABLE = "JETSPEC_CONTROLLER_TOKEN"
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """`90`, `90s`, `15m`, `2h` or `1d` as seconds. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or float(match[1]) == 0:
        raise ValueError(f"{text!r} is not a duration; write a number above 0 and s, m, h or d")
    return float(match[1]) * UNITS[match[2] or "s"]


def token(token_file: Path | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The first token of the file, else that of the environment. Raises ValueError."""
    if token_file is None:
        return environment.get(TOKEN_VARIABLE, "").strip() or None
    try:
        return next(iter(read_tokens(token_file).values()))
    except SettingsError as error:
        raise ValueError(str(error).replace("api.token_file", "--token-file")) from error


async def pin(
    url: str, key: str | None, target: str, budget: int, ttl_s: float, reason: str
) -> str:
    """What was pinned, in words. Raises ValueError."""
    wanted = {"budget": budget, "ttl_s": ttl_s, "reason": reason}
    await _send(url, key, "PUT", _pin_path(target), wanted)
    return f"{target} is pinned to budget {budget} for {ttl_s:g} s"


async def unpin(url: str, key: str | None, target: str) -> str:
    """What was unpinned, in words. Raises ValueError."""
    await _send(url, key, "DELETE", _pin_path(target))
    return f"{target} is no longer pinned"


async def pause(url: str, key: str | None, *, paused: bool) -> str:
    """Pause or resume all servers; the new state in words. Raises ValueError."""
    await _send(url, key, "POST", "/v1/pause" if paused else "/v1/resume")
    return "paused: decisions are not applied" if paused else "resumed: decisions are applied"


def _pin_path(target: str) -> str:
    if not re.match(TARGET_ID, target):
        raise ValueError(f"target is {target!r}; it must be an id as `explain` shows it")
    return f"/v1/targets/{quote(target, safe='')}/pin"


async def _send(url: str, key: str | None, method: str, path: str, body: Any = None) -> None:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"--url is {url!r}; it must begin with http:// or https://")
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    place = url.rstrip("/") + path
    try:
        async with HttpClient() as client:
            await client.send(method, place, timeout_s=TIMEOUT_S, headers=headers, json=body)
    except FetchError as error:
        hint = ""
        if error.fault is Fault.UNAUTHORISED:
            hint = f"; give a token with --token-file or {TOKEN_VARIABLE}"
        elif error.fault is Fault.DOWN:
            hint = "; is the controller running, and is --url its address?"
        raise ValueError(f"{place}: {error.detail}{hint}") from error
