"""Bearer tokens that allow writes. Reads the token file."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from pathlib import Path

from jetspec_controller.settings import ApiSettings, SettingsError

MIN_LENGTH = 16
ANYONE = "anyone"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Digests of the tokens by name. `insecure`: writes need none."""

    digests: dict[str, bytes] = field(repr=False)
    insecure: bool

    @classmethod
    def load(cls, api: ApiSettings) -> Tokens:
        """Raises SettingsError without a usable token, unless `insecure` was asked for."""
        if api.token_file is None:
            if not api.insecure:
                raise SettingsError(
                    "api.token_file: none given, so nobody could pin or pause; name a file with "
                    "--token-file, or allow writes from anyone with --insecure"
                )
            return cls({}, insecure=True)
        digests = {name: _digest(token) for name, token in read_tokens(api.token_file).items()}
        return cls(digests, insecure=api.insecure)

    def actor(self, presented: str | None) -> str | None:
        """Name of the token's owner, None if it is not one of ours. Takes the same time whichever
        token is presented: every digest is compared.
        """
        found = ANYONE if self.insecure else None
        if presented is not None:
            given = _digest(presented)
            for name, digest in self.digests.items():
                if hmac.compare_digest(given, digest):
                    found = name
        return found


def read_tokens(path: Path) -> dict[str, str]:
    """The tokens of a file by name. Raises SettingsError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"api.token_file: {path}: {error}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        name, token = (words[0], words[1]) if len(words) == 2 else (f"token-{number}", words[0])
        if len(words) > 2 or len(token) < MIN_LENGTH or name in found:
            raise SettingsError(
                f"api.token_file: {path}:{number}: a line is `token` or `name token`, names "
                f"differ, a token has {MIN_LENGTH} characters or more"
            )
        found[name] = token
    if not found:
        raise SettingsError(f"api.token_file: {path} holds no token")
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
