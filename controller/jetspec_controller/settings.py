"""The controller's one settings model, filled from flags, environment and a YAML file.

Precedence: flags, then `JETSPEC_CONTROLLER_…` variables (`__` between levels), then the file.
`load` reads the file and the environment; everything else is pure. Every mistake becomes one
`SettingsError` that names the field, the value and what is allowed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as SourceError,
)

from jetspec_controller.connections import Endpoint, HttpUrl, Secret, Section, Tls
from jetspec_controller.core import PolicyConfig
from jetspec_controller.targets import host_port

TARGET_ID = r"^[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,127}$"
TargetId = Annotated[str, Field(pattern=TARGET_ID)]


class SettingsError(ValueError):
    """The configuration is invalid; the message has one line per mistake."""


class TargetSettings(Section):
    """One server named by hand. `policy` overrides single keys of the shared policy."""

    url: HttpUrl
    id: TargetId | None = None
    instance: str | None = Field(None, description="its instance label in Prometheus")
    api_key: Secret | None = None
    admin_key: Secret | None = None
    policy: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.id or host_port(self.url)


class FileDiscovery(Section):
    """A file in Prometheus' file_sd format, JSON or YAML, read again when it changes."""

    path: Path
    scheme: str = Field("http", pattern="^https?$")


class PrometheusDiscovery(Section):
    """Every instance of an `up` query; needs `prometheus`."""

    query: str = Field('up{job="sglang"}', min_length=1)
    scheme: str = Field("http", pattern="^https?$")
    refresh_s: float = Field(15.0, gt=0)


class KubernetesDiscovery(Section):
    """The endpoints of one Service, read from its EndpointSlices."""

    service: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    namespace: str | None = Field(None, description="default: the pod's own")
    port: str | int | None = Field(None, description="name or number; default: the first")
    scheme: str = Field("http", pattern="^https?$")
    refresh_s: float = Field(10.0, gt=0)
    kubeconfig: Path | None = Field(None, description="default: the pod's service account")


class RouterDiscovery(Endpoint):
    """The workers of an sglang-router. Control always goes to them, never to the router."""

    refresh_s: float = Field(10.0, gt=0)


class DiscoverySettings(Section):
    file: FileDiscovery | None = None
    prometheus: PrometheusDiscovery | None = None
    kubernetes: KubernetesDiscovery | None = None
    router: RouterDiscovery | None = None


class PrometheusSettings(Endpoint):
    """Metrics through a Prometheus. Without it the targets are scraped directly."""

    selector: str = Field("", description='extra label matchers, e.g. job="sglang"')
    instance_label: str = Field("instance", pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")
    lookback_s: float = Field(30.0, ge=1, le=3600, description="at least two scrape intervals")


class ScrapeSettings(Section):
    """Direct scraping of `/metrics` and `/v1/loads`."""

    timeout_s: float = Field(1.5, gt=0, le=60)
    concurrency: int = Field(32, ge=1, le=1024)
    loads: bool = Field(True, description="take the load from /v1/loads, which has no delay")


class SourceSettings(Section):
    """What both sources share."""

    window_s: float = Field(60.0, ge=1, le=3600, description="span of lengths and percentiles")
    latency_percentile: float = Field(0.95, gt=0, lt=1)
    cost_file: Path | None = Field(None, description="rows and seconds, if no gauges are there")


class ControlSettings(Section):
    """Calls to SGLang's admin API, which has no timeout of its own."""

    timeout_s: float = Field(3.0, gt=0, le=60)
    concurrency: int = Field(32, ge=1, le=1024)
    breaker_failures: int = Field(3, ge=1, le=100, description="failures in a row that open it")
    breaker_open_s: float = Field(10.0, gt=0, description="first pause, doubled up to the maximum")
    breaker_max_open_s: float = Field(60.0, gt=0)
    api_key: Secret | None = Field(None, description="for targets without a key of their own")
    admin_key: Secret | None = Field(None, description="for targets without a key of their own")
    tls: Tls = Tls()


class OnShutdown(StrEnum):
    """The budgets that servers keep when the controller stops."""

    HOLD = "hold"
    RESTORE = "restore"


class ApiSettings(Section):
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(30900, ge=0, le=65535)
    token_file: Path | None = Field(None, description="lines of `token` or `name token`")
    insecure: bool = Field(False, description="accept writes from anyone")
    history: int = Field(300, ge=1, le=100_000, description="decisions kept of each server")


def _state_path() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "jetspec-controller" / "state.sqlite"


class StateSettings(Section):
    path: Path = Field(default_factory=_state_path, description="pins, pause, launch budgets")


class AuditSettings(Section):
    """JSON lines; without a path they go to standard output."""

    path: Path | None = None
    max_bytes: int = Field(50_000_000, ge=10_000)
    backups: int = Field(5, ge=1, le=1000)


class Settings(BaseSettings):
    """Everything the controller can be told."""

    model_config = SettingsConfigDict(
        env_prefix="JETSPEC_CONTROLLER_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    targets: tuple[TargetSettings, ...] = ()
    target_policies: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="{id or shell pattern: policy keys} of targets without a policy of their own; "
        "the first match is used",
    )
    discovery: DiscoverySettings = DiscoverySettings()
    prometheus: PrometheusSettings | None = None
    source: SourceSettings = SourceSettings()
    scrape: ScrapeSettings = ScrapeSettings()
    control: ControlSettings = ControlSettings()
    policy: PolicyConfig = PolicyConfig()
    api: ApiSettings = ApiSettings()
    state: StateSettings = Field(default_factory=StateSettings)
    audit: AuditSettings = AuditSettings()
    on_shutdown: OnShutdown = OnShutdown.HOLD
    record: Path | None = Field(None, description="append observations here, for `replay`")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)

    @field_validator("targets", mode="before")
    @classmethod
    def _bare_urls(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [{"url": item} if isinstance(item, str) else item for item in value]
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [target.name for target in self.targets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"targets: the id {name!r} is given more than once")
        found = self.discovery
        if not names and found == DiscoverySettings():
            raise ValueError("targets: none given; name one, or set a `discovery`")
        if found.prometheus is not None and self.prometheus is None:
            raise ValueError("discovery.prometheus needs `prometheus.url`")
        own = {f"targets: {target.name}": target.policy for target in self.targets}
        shared = {f"target_policies: {name}": keys for name, keys in self.target_policies.items()}
        for place, keys in {**own, **shared}.items():
            try:
                policy_for(self.policy, keys)
            except ValidationError as error:
                raise ValueError(f"{place}: policy.{explain(error)}") from error
        return self

    def policy_keys(self, target_id: str) -> Mapping[str, Any]:
        """The policy keys from `target_policies` for a target without its own policy."""
        for pattern, keys in self.target_policies.items():
            # An id may hold brackets, which a pattern would take for a set of characters.
            if target_id == pattern or fnmatchcase(target_id, pattern):
                return keys
        return {}

    @property
    def digest(self) -> str:
        """Twelve hex digits that name this configuration."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]


RESTART_ONLY = ("api.host", "api.port", "api.history", "state", "audit", "record")
"""Keys that only a restart puts in force."""


def in_force(wanted: Settings, running: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The part of `wanted` that a running controller can use, and the keys that need a restart."""
    waiting = tuple(
        key for key in RESTART_ONLY if attrgetter(key)(wanted) != attrgetter(key)(running)
    )
    kept: dict[str, Any] = {}
    api: dict[str, Any] = {}
    for key in waiting:
        section, _, name = key.partition(".")
        (api if name else kept)[name or section] = attrgetter(key)(running)
    kept["api"] = wanted.api.model_copy(update=api)
    return wanted.model_copy(update=kept), waiting


def policy_for(policy: PolicyConfig, overrides: Mapping[str, Any]) -> PolicyConfig:
    """The shared policy with a target's own keys. Raises ValueError for a wrong key or value."""
    if not overrides:
        return policy
    return PolicyConfig.model_validate({**policy.model_dump(), **overrides})


def load(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Settings from the file (if any), the environment and the flags (nested like the file).

    Raises SettingsError; nothing is half-applied.
    """
    if path is not None:
        _check_mapping(path)

    class Loaded(Settings, yaml_file=path):
        """Settings that know their file."""

    try:
        return Loaded(**dict(flags or {}))
    except ValidationError as error:
        raise SettingsError(explain(error)) from error
    except SourceError as error:
        raise SettingsError(f"{error}; it must be JSON") from error


def explain(error: ValidationError) -> str:
    """One line per mistake: the field, what is allowed, what was given."""
    lines = (f"{_place(part['loc'])}: {_problem(part)}" for part in error.errors())
    return "\n".join(lines)


def _check_mapping(path: Path) -> None:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not YAML: {error}") from error
    if content is not None and not isinstance(content, dict):
        raise SettingsError(f"{path}: must be a mapping, is a {type(content).__name__}")
    for key in content or ():
        if not isinstance(key, str):
            raise SettingsError(f"{path}: {key!r} is not a setting")


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location)) or "settings"


def _problem(part: Mapping[str, object]) -> str:
    message = str(part["msg"]).removeprefix("Value error, ")
    given = part.get("input")
    if isinstance(given, str | int | float | bool):
        return f"{message} (given: {given!r})"
    return message
