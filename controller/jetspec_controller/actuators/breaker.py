"""A circuit breaker for one server's control calls. Pure: the caller passes the time."""

from __future__ import annotations

from dataclasses import dataclass

from jetspec_controller.settings import ControlSettings

CLOSED, TRIAL, OPEN = 0, 1, 2


@dataclass(slots=True)
class Breaker:
    """Opens after `breaker_failures` failures in a row; then lets one trial call through after
    `breaker_open_s`, doubled with each trial that fails up to `breaker_max_open_s`.
    """

    settings: ControlSettings
    failures: int = 0
    opened_at: float | None = None
    open_s: float = 0.0

    def level(self, now: float) -> int:
        if self.opened_at is None:
            return CLOSED
        return TRIAL if now - self.opened_at >= self.open_s else OPEN

    def succeeded(self) -> None:
        self.failures, self.opened_at, self.open_s = 0, None, 0.0

    def failed(self, now: float) -> None:
        self.failures += 1
        if self.failures < self.settings.breaker_failures:
            return
        longer = 2 * self.open_s or self.settings.breaker_open_s
        self.open_s = min(longer, self.settings.breaker_max_open_s)
        self.opened_at = now
