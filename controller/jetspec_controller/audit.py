"""The audit log: who changed what, and when. One JSON object per line; the kinds of events are
fixed.

It is separate from the program's log, so that it can be kept longer and read by machines. It writes
to a rotated file or to standard output. A line that cannot be written is counted and reported. It
never stops control.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from typing import Any, TextIO

import orjson

from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.settings import AuditSettings

logger = logging.getLogger(__name__)
SYSTEM = "controller"
"""The actor of every event that no person caused."""


class Event(StrEnum):
    """All events. The comment after each one names its fields besides `at`, `event` and `actor`."""

    STARTED = "started"  # version, config
    STOPPED = "stopped"  # on_shutdown
    TARGET_ADDED = "target_added"  # target, url, origin
    TARGET_REMOVED = "target_removed"  # target
    DECIDED = "decided"  # target, decision, action, reason, budget, table: on a change only
    APPLIED = "applied"  # target, decision, result, detail, before, after, seconds
    APPLY_FAILED = "apply_failed"  # the same
    SECOND_WRITER = "second_writer"  # target, overwrites, found: somebody else sets the budget too
    RESTARTED = "restarted"  # target: the server lost its budget with its process
    PIN_SET = "pin_set"  # target, budget, expires_at, reason
    PIN_REMOVED = "pin_removed"  # target
    PIN_EXPIRED = "pin_expired"  # target
    PAUSED = "paused"
    RESUMED = "resumed"
    CONFIG_RELOADED = "config_reloaded"  # config, restart_needed
    CONFIG_REFUSED = "config_refused"  # detail
    WRITE_DENIED = "write_denied"  # path


class AuditLog:
    """Appends events; `clock` gives Unix seconds."""

    def __init__(
        self, settings: AuditSettings, metrics: ControllerMetrics, clock: Callable[[], float]
    ) -> None:
        """Raises OSError if the file cannot be opened."""
        self._clock = clock
        self._handler: logging.Handler
        if settings.path is None:
            self._handler = _StdoutHandler(metrics)
        else:
            settings.path.parent.mkdir(parents=True, exist_ok=True)
            self._handler = _FileHandler(settings, metrics)

    def write(self, event: Event, *, actor: str = SYSTEM, **fields: Any) -> None:
        """Record one event. Raises nothing."""
        entry = {"at": round(self._clock(), 3), "event": event, "actor": actor, **fields}
        line = orjson.dumps(entry, default=str).decode()
        self._handler.handle(logging.makeLogRecord({"name": "audit", "msg": line}))

    def close(self) -> None:
        try:
            self._handler.close()
        except OSError as error:
            logger.error("the end of the audit log was lost: %s", error)


class _LossCounter(logging.Handler):
    """Counts lines that could not be written. Logs the problem once, until a line is written
    again."""

    metrics: ControllerMetrics
    losing = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self.metrics.audit_errors_total.inc()
        if not self.losing:
            logger.error("audit lines are being lost: %s", sys.exc_info()[1])
        self.losing = True


class _FileHandler(_LossCounter, RotatingFileHandler):
    def __init__(self, settings: AuditSettings, metrics: ControllerMetrics) -> None:
        self.metrics = metrics
        assert settings.path is not None
        super().__init__(
            settings.path, maxBytes=settings.max_bytes, backupCount=settings.backups, delay=False
        )


class _StdoutHandler(_LossCounter, logging.StreamHandler[TextIO]):
    def __init__(self, metrics: ControllerMetrics) -> None:
        self.metrics = metrics
        super().__init__(sys.stdout)
