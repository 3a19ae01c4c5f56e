"""How to reach a service: address, credentials, TLS. Reads secret files and does no other I/O.

Secrets come from a file or an environment variable, never from the text of the configuration. They
are read at each use, so a rotated file takes effect without a reload.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

WHITESPACE = re.compile(r"\s")


class Section(BaseModel):
    """A part of the configuration: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _http_url(value: str) -> str:
    try:
        url = urlsplit(value)
        host, _ = url.hostname, url.port
    except ValueError as error:
        raise ValueError(f"{value!r} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not host or WHITESPACE.search(value):
        raise ValueError(f"{value!r} must be http://host[:port][/path] or https://…")
    if url.username or url.password or url.query or url.fragment:
        raise ValueError(f"{value!r} must hold neither credentials, query nor fragment")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^[\x20-\x7e\t]*$")]


class Secret(Section):
    """Where a secret is: exactly one of a file (its first line) or an environment variable."""

    file: Path | None = None
    env: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("secret: give exactly one of `file` and `env`")
        return self

    def read(self) -> str:
        """The secret. Raises ValueError that names the place, not the secret."""
        if self.env is not None:
            value = os.environ.get(self.env, "")
        else:
            assert self.file is not None
            try:
                value = self.file.read_text().partition("\n")[0]
            except OSError as error:
                raise ValueError(f"secret file {self.file}: {error.strerror}") from error
        value = value.strip()
        if not value:
            raise ValueError(f"secret {self.env or self.file} is empty")
        return value


class BasicAuth(Section):
    username: str
    password: Secret


class Tls(Section):
    """Client side of TLS. Without `ca_file` the system's trust store is used."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False

    def context(self) -> ssl.SSLContext:
        """Raises ValueError for a file that cannot be loaded."""
        # The errors name no file themselves.
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ValueError(f"tls.ca_file: {self.ca_file}: {error}") from error
        if self.cert_file is not None:
            files = f"{self.cert_file}, key_file: {self.key_file}"
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as error:
                raise ValueError(f"tls.cert_file: {files}: {error}") from error
        if self.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Endpoint(Section):
    """The connection to an HTTP service: a Prometheus or a router."""

    url: HttpUrl
    timeout_s: float = Field(2.0, gt=0, le=60, description="deadline of one call")
    bearer: Secret | None = None
    basic: BasicAuth | None = None
    headers: dict[HeaderName, HeaderValue] = Field(
        default_factory=dict, description="e.g. X-Scope-OrgID"
    )
    tls: Tls = Tls()

    @model_validator(mode="after")
    def _one_scheme(self) -> Self:
        if self.bearer is not None and self.basic is not None:
            raise ValueError("give at most one of `bearer` and `basic`")
        return self

    def request_headers(self) -> dict[str, str]:
        headers = dict(self.headers)
        if self.bearer is not None:
            headers["Authorization"] = f"Bearer {self.bearer.read()}"
        if self.basic is not None:
            pair = f"{self.basic.username}:{self.basic.password.read()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers
