"""Checks a server before the load: does it answer, does it have the model, is it SGLang?

Contract: every problem is a ConfigError of one line. I/O: HTTP GET, the file with the API key.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtests.config import ConfigError, LoadConfig

TIMEOUT_S = 10.0
_KEPT = (
    "version", "model_path", "served_model_name", "dtype", "max_running_requests", "tp_size",
    "speculative_algorithm", "speculative_num_draft_tokens", "speculative_eagle_topk",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`info`: the part of `/server_info` for the report; empty if the server is not SGLang."""

    model: str
    sglang: bool
    info: dict[str, Any]


def api_key(config: LoadConfig) -> str:
    """The key of `--api-key-file`, or of OPENAI_API_KEY, or none."""
    if not config.api_key_file:
        return os.environ.get("OPENAI_API_KEY", "")
    try:
        return Path(config.api_key_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {config.api_key_file}: {error}") from None


def look(config: LoadConfig, host: str | None) -> ServerFacts:
    """ConfigError for no URL, no answer, a wrong key, or a model that is not served."""
    if not host:
        raise ConfigError("--host is missing: the server's URL, for example http://127.0.0.1:30000")
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--host {host}: must be a URL that starts with http:// or https://")
    base = host.rstrip("/").removesuffix("/v1")
    key = api_key(config)
    status, listed = _get(f"{base}/v1/models", key)
    if status in (401, 403):
        raise ConfigError(f"{base}: {status}, the key is missing or wrong; see --api-key-file")
    names = _names(listed) if status == 200 else []
    model = config.model or (names[0] if names else "")
    if not model:
        raise ConfigError(f"{base}/v1/models lists no model ({status}); name one with --model")
    if names and model not in names:
        raise ConfigError(
            f"--model {model}: {base} does not serve it; it serves {', '.join(names)}"
        )
    status, info = _get(f"{base}/server_info", key)
    sglang = status == 200 and isinstance(info, dict) and "internal_states" in info
    return ServerFacts(model, sglang, _kept(info) if sglang else {})


def _get(url: str, key: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT_S
        ) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None
    except ValueError:
        return 200, None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(f"no server answers at {url}: {reason}") from None


def _names(listed: Any) -> list[str]:
    data = listed.get("data") if isinstance(listed, dict) else None
    return [str(one["id"]) for one in data or [] if isinstance(one, dict) and "id" in one]


def _kept(info: dict[str, Any]) -> dict[str, Any]:
    kept = {name: info[name] for name in _KEPT if name in info}
    states = info.get("internal_states") or [{}]
    if isinstance(states[0], dict) and "jetspec" in states[0]:
        kept["jetspec"] = states[0]["jetspec"]
    return kept
