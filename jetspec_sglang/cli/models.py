"""Quick checks of a target and a head before SGLang loads them.

Contract: each raises CommandError with one line. I/O: reads config.json and the head's files; asks
the hub for what is not on disk (SGLang would fetch the same files).
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspec_sglang.client.errors import CommandError

if TYPE_CHECKING:
    from jetspec_sglang.head.finding import Finding

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def check_model(model: str, revision: str | None = None) -> None:
    """Refuse a target that is neither on disk nor on the hub.

    Spellings that only SGLang understands (object stores, quantisation suffixes) pass.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "params.json")):
            raise CommandError(f"--model-path {model}: has no config.json")
        return
    if model.startswith(("/", "./", "../", "~")) or model.endswith("/"):
        raise CommandError(f"--model-path {model}: no such folder")
    if _HUB_ID.fullmatch(model):
        _fetch_config(model, revision)


def target_config(model: str) -> dict[str, Any]:
    """config.json of a target, as a mapping."""
    path = Path(model).expanduser()
    file = path / "config.json" if path.is_dir() else Path(_fetch_config(model, None))
    try:
        config: dict[str, Any] = json.loads(file.read_text())
        return config
    except (OSError, ValueError) as error:
        raise CommandError(f"{file}: {error}") from None


def require_head(head: str, model: str | None) -> tuple["Finding", ...]:
    """Refuse a head that is missing, damaged, or made for another target. Returns the warnings."""
    from jetspec_sglang.head.check import check_head, read_target

    try:
        return check_head(head, read_target(model)).require().warnings
    except ValueError as error:
        raise CommandError(str(error)) from None


def _fetch_config(model: str, revision: str | None) -> str:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    try:
        return hf_hub_download(model, "config.json", revision=revision)
    except RemoteEntryNotFoundError as error:
        raise CommandError(f"--model-path {model}: no config.json ({_first_line(error)})") from None
    except (HfHubHTTPError, OSError) as error:
        raise CommandError(
            f"--model-path {model}: no such folder, and the hub did not provide it "
            f"({_first_line(error)})"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
