"""The budget controller that `jetspec serve` starts beside its server: command and environment.

Contract: its files (token, state, audit log) lie in the cache folder, one set per server port.
I/O: makes that folder and, once, the token in it.
"""

import os
import secrets
import sys
from pathlib import Path
from typing import Any

from jetspec_sglang.cache import cache_dir
from jetspec_sglang.cli.flags import Flags

_ANY_ADDRESS = {"0.0.0.0", "::"}
_KEYS = {"--api-key": "API_KEY", "--admin-api-key": "ADMIN_KEY"}


def server_url(flags: Flags, port: int) -> str:
    """The address at which this machine reaches the server that these flags start."""
    host = flags.value("--host") or "127.0.0.1"
    if host in _ANY_ADDRESS:
        host = "127.0.0.1"
    scheme = "https" if flags.given("--ssl-certfile") else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def obstacle(flags: Flags) -> str | None:
    """The reason why no controller can be started here, or None."""
    if flags.integer("--node-rank", 0) != 0:
        return "this is not the first node"
    if flags.given("--ssl-certfile"):
        return "with TLS it needs its own configuration; start jetspec-controller by hand"
    if not _script().exists():
        return "jetspec-controller is not installed beside this interpreter"
    return None


def companion(url: str, controller_port: int) -> dict[str, Any]:
    """The controller for the server at `url`, as `supervise` runs it."""
    page = f"http://127.0.0.1:{controller_port}"
    return {
        "name": "controller",
        "command": [
            *(str(_script()), "--log-level", "warning", "run", "--target", url),
            *("--port", str(controller_port), "--token-file", str(_token())),
        ],
        "page": page,
        "ready": f"{page}/livez",
    }


def environment(flags: Flags, port: int) -> dict[str, str]:
    """Variables that tell the controller where its files are and which keys the server needs."""
    variables = {
        "JETSPEC_CONTROLLER_STATE__PATH": str(_folder() / f"state-{port}.sqlite"),
        "JETSPEC_CONTROLLER_AUDIT__PATH": str(_folder() / f"audit-{port}.jsonl"),
    }
    for flag, name in _KEYS.items():
        if key := flags.value(flag):
            source = f"JETSPEC_SERVER_{name}"
            variables |= {source: key, f"JETSPEC_CONTROLLER_CONTROL__{name}__ENV": source}
    return variables


def _script() -> Path:
    return Path(sys.executable).parent / "jetspec-controller"


def _folder() -> Path:
    folder = cache_dir() / "controller"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _token() -> Path:
    """The secret that lets its owner pin budgets and pause; readable by its owner alone."""
    file = _folder() / "token"
    if not file.exists():
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as token:
            token.write(secrets.token_urlsafe(32) + "\n")
    return file
