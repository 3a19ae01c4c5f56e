"""Hides the server's keys in `/server_info`, in the read-back of the ranks and in its log.

SGLang answers `/server_info` with all of its arguments, including `admin_api_key`, to every user of
the API. The admin key would then protect nothing. Hooks only; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

FIELDS = ("api_key", "admin_api_key", "ssl_keyfile_password")
FLAGS = tuple(f"--{name.replace('_', '-')}" for name in FIELDS)
HIDDEN = "<redacted>"


def hide_fields(result: dict[str, Any], server_args: object) -> dict[str, Any]:
    """AFTER hook on the arguments as a dict."""
    return {**result, **{name: HIDDEN for name in FIELDS if result.get(name) is not None}}


def hide_flags(original: Callable[..., str], argv: Sequence[str], *more: Any, **named: Any) -> str:
    """AROUND hook on the command line that SGLang reports."""
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        secret = not hide_next and _is_key(name)
        if hide_next:
            shown.append(HIDDEN)
        else:
            shown.append(f"{name}={HIDDEN}" if secret and equals else argument)
        hide_next = secret and not equals
    return original(shown, *more, **named)


def _is_key(name: str) -> bool:
    """Whether argparse would take it for one of the flags; it allows unique beginnings."""
    return len(name) > len("--a") and any(flag.startswith(name) for flag in FLAGS)
