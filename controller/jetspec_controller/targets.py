"""A server under control: its name, its address, and the keys it asks for. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from jetspec_controller.connections import Secret


class Origin(StrEnum):
    """What named the target."""

    STATIC = "static"
    FILE = "file"
    PROMETHEUS = "prometheus"
    KUBERNETES = "kubernetes"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Target:
    """`instance` is the value of Prometheus' instance label for this server."""

    id: str
    url: str
    instance: str
    origin: Origin = Origin.STATIC
    api_key: Secret | None = None
    admin_key: Secret | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)

    def headers(self, *, admin: bool = False) -> dict[str, str]:
        """The bearer token of a call. If SGLang has an admin key, control routes need it. All other
        routes need the API key. Raises ValueError if the secret cannot be read.
        """
        key = self.admin_key if admin and self.admin_key is not None else self.api_key
        return {} if key is None else {"Authorization": f"Bearer {key.read()}"}


def host_port(url: str) -> str:
    """`host:port` of a URL, the default name and Prometheus instance of a target."""
    parsed = urlsplit(url)
    host = parsed.hostname or ""
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
