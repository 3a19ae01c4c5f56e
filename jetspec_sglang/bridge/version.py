"""The SGLang release that the bridge was checked against."""

from __future__ import annotations

from importlib.metadata import version

CHECKED_VERSION = "0.5.23"


def require_checked_version() -> None:
    """RuntimeError unless the installed SGLang is the one this module was checked against."""
    installed = version("sglang")
    if installed != CHECKED_VERSION:
        raise RuntimeError(
            f"jetspec-sglang needs sglang=={CHECKED_VERSION}, found {installed}; "
            f"install it with: pip install sglang=={CHECKED_VERSION}"
        )
