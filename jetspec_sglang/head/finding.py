"""`Finding`: one problem of a head, with its parts; `HeadError`: a head that is refused.

Contract: pure. Doctor, serve and engine show the same findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

MISSING = "missing"
"""Value of a field that is not there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one field of a head.

    code: the kind of fault, stable. field: the config key, tensor or file. allowed: what the value
    must be. severity: a `fail` stops a server, a `warn` does not.
    """

    code: str
    field: str
    value: Any
    allowed: str
    remedy: str = "correct the head, or name another one"
    severity: Literal["fail", "warn"] = "fail"

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.field}: {self.allowed}"
        if self.value == MISSING:
            return f"{self.field}: missing; {self.allowed}"
        return f"{self.field} = {_short(self.value)}: {self.allowed}"


class HeadError(ValueError):
    """A head that no server may start with; the message is one line with every finding."""

    def __init__(self, findings: Iterable[Finding], where: str = "") -> None:
        self.findings = tuple(findings)
        self.where = where
        text = "; ".join(str(finding) for finding in self.findings)
        super().__init__(f"{where}: {text}" if where else text)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
