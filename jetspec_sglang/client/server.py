"""`Server`: the few calls that the command line makes to a running SGLang server.

Contract: every failure is a CommandError of one line that names the URL. I/O: HTTP, with
timeouts (SGLang's control calls have none of their own).
"""

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from jetspec_sglang.client.errors import CommandError, UsageError

DEFAULT_URL = "http://127.0.0.1:30000"
CONTROL_TIMEOUT_S = 30.0
"""A control call waits for the round in flight; a slow host's prefill can take seconds."""


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for servers with --api-key or --admin-api-key."""
    parser.add_argument(
        "--api-key-file", metavar="FILE", help="file that holds the API key (or JETSPEC_API_KEY)"
    )
    parser.add_argument(
        "--admin-api-key-file",
        metavar="FILE",
        help="file that holds the admin key (or JETSPEC_ADMIN_API_KEY)",
    )


def connect(url: str, args: argparse.Namespace) -> "Server":
    """The server at `url`, with the keys that flags or environment give."""
    _check_url(url)
    api_key = _key(args.api_key_file, "JETSPEC_API_KEY")
    return Server(url, api_key, _key(args.admin_api_key_file, "JETSPEC_ADMIN_API_KEY") or api_key)


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not a URL; it must start with http:// or https://")
    try:
        parts = urlsplit(url)
        named, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from None
    if not named:
        raise UsageError(f"{url!r} is not a URL: it names no host")


def _key(file: str | None, variable: str) -> str | None:
    if file is None:
        return os.environ.get(variable) or None
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the key in {file}: {error}") from None


class Server:
    """A running SGLang server at `url`."""

    def __init__(self, url: str, api_key: str | None = None, admin_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._api, self._admin = _bearer(api_key), _bearer(admin_key)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of an ordinary (not admin) request."""
        return dict(self._api)

    def model_path(self) -> str:
        """Folder or hub id of the model that is served."""
        return str(self._json("GET", "/model_info", headers=self._api)["model_path"])

    def jetspec_states(self) -> list[dict[str, Any]]:
        """`internal_states[i].jetspec` of every data-parallel rank."""
        info = self._json("GET", "/server_info", headers=self._api)
        states = [s.get("jetspec") for s in info.get("internal_states", []) if isinstance(s, dict)]
        found = [state for state in states if isinstance(state, dict)]
        if not found or len(found) != len(states):
            raise CommandError(f"{self.url} does not decode with JETSPEC")
        return found

    def set_internal_state(self, values: dict[str, int]) -> list[bool]:
        """Ask every rank to take the values: True per rank that did."""
        answer = self._json(
            "POST", "/set_internal_state", json={"server_args": values}, headers=self._admin
        )
        if not isinstance(answer, list) or not all(isinstance(one, bool) for one in answer):
            raise CommandError(f"{self.url}/set_internal_state answered {answer!r}, not booleans")
        return answer

    def chat(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Chunks of a streamed /v1/chat/completions, as they arrive."""
        try:
            with httpx.stream(
                "POST",
                f"{self.url}/v1/chat/completions",
                json={**body, "stream": True},
                headers=self._api,
                timeout=httpx.Timeout(CONTROL_TIMEOUT_S, read=600.0),
            ) as response:
                if response.status_code != 200:
                    response.read()
                    raise CommandError(self._refusal(response))
                for line in response.iter_lines():
                    if line.startswith("data: ") and line != "data: [DONE]":
                        chunk = json.loads(line.removeprefix("data: "))
                        if "error" in chunk:
                            raise CommandError(f"{self.url}: {chunk['error']}")
                        yield chunk
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise CommandError(self._trouble(error)) from None

    def _json(self, method: str, path: str, **kwargs: Any) -> Any:
        try:
            response = httpx.request(
                method, f"{self.url}{path}", timeout=CONTROL_TIMEOUT_S, **kwargs
            )
            if response.status_code != 200:
                raise CommandError(self._refusal(response))
            return response.json()
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise CommandError(self._trouble(error)) from None

    def _refusal(self, response: httpx.Response) -> str:
        where = f"{response.request.method} {response.request.url}"
        if response.status_code in (401, 403):
            return (
                f"{where}: {response.status_code}, the key is missing or wrong; "
                "see --api-key-file and --admin-api-key-file"
            )
        if response.status_code == 404:
            return f"{where}: 404, this is not an SGLang server"
        return f"{where}: {response.status_code} {' '.join(response.text.split())[:200]}"

    def _trouble(self, error: Exception) -> str:
        if isinstance(error, httpx.ConnectError):
            return f"no server answers at {self.url} ({error}); start a server with `jetspec serve`"
        return f"{self.url}: {type(error).__name__}: {error}"


def _bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}
