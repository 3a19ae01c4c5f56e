"""State that must survive a restart: pins, the pause, and the budgets that servers had before
control.

One small SQLite file, written in transactions with full synchronisation, so that a crash or a power
cut leaves the last committed state. A file that cannot be read is renamed, and a new one is
started: to control with empty state is better than not to control. Does disk I/O; every statement
touches a few rows.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from jetspec_controller.core import BudgetReadback
from jetspec_controller.exporter import ControllerMetrics

logger = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS pins (
    target TEXT PRIMARY KEY, budget INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS launch (target TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS flags (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


class StateUnavailableError(RuntimeError):
    """The state file cannot be written, for example because the disk is full. Nothing was
    changed."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A budget fixed by a person until `expires_at` (Unix seconds)."""

    target: str
    budget: int
    actor: str
    reason: str
    created_at: float
    expires_at: float


class StateFile:
    """Reads come from memory. Writes go to the file first, and to memory only if they succeeded."""

    def __init__(self, path: Path, metrics: ControllerMetrics) -> None:
        """Raises OSError if the file cannot be created."""
        self._metrics = metrics
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._use(path)
        except sqlite3.OperationalError as error:
            raise OSError(f"state.path: {path}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, TypeError, KeyError) as error:
            aside = path.with_name(f"{path.name}.corrupt-{os.getpid()}")
            logger.error("%s is not a usable state file (%s); renamed to %s", path, error, aside)
            path.rename(aside)
            self._use(path)

    def set_pin(self, pin: Pin) -> None:
        """Raises StateUnavailableError."""
        values = (pin.target, pin.budget, pin.actor, pin.reason, pin.created_at, pin.expires_at)
        self._write("INSERT OR REPLACE INTO pins VALUES (?, ?, ?, ?, ?, ?)", values)
        self.pins[pin.target] = pin

    def remove_pin(self, target: str) -> Pin | None:
        """The pin that was removed, None if there was none. Raises StateUnavailableError."""
        if target not in self.pins:
            return None
        self._write("DELETE FROM pins WHERE target = ?", (target,))
        return self.pins.pop(target)

    def expire_pins(self, now: float) -> Iterator[Pin]:
        """Removes expired pins and returns them. A pin ends even if it cannot be deleted from the
        file, because it is expired there, too.
        """
        for pin in [pin for pin in self.pins.values() if pin.expires_at <= now]:
            del self.pins[pin.target]
            try:
                self._write("DELETE FROM pins WHERE target = ?", (pin.target,))
            except StateUnavailableError as error:
                logger.error("an expired pin stays in the state file: %s", error)
            yield pin

    def set_paused(self, paused: bool) -> None:
        """Raises StateUnavailableError."""
        self._write(
            "INSERT OR REPLACE INTO flags VALUES ('paused', ?)", ("yes" if paused else "no",)
        )
        self.paused = paused

    def remember_launch(self, target: str, state: BudgetReadback) -> None:
        """Store the budget that a server had when it was first seen. Raises
        StateUnavailableError."""
        kept = {
            "budget": state.budget,
            "tiers": state.tiers,
            "max_budget": state.max_budget,
            "table": state.table,
        }
        self._write(
            "INSERT OR REPLACE INTO launch VALUES (?, ?)", (target, orjson.dumps(kept).decode())
        )
        self.launch[target] = state

    def forget_launch(self, target: str) -> None:
        """Forget a server that is gone. If this fails, only a row stays in the file."""
        if self.launch.pop(target, None) is not None:
            try:
                self._write("DELETE FROM launch WHERE target = ?", (target,))
            except StateUnavailableError as error:
                logger.error("%s", error)

    def close(self) -> None:
        self._connection.close()

    def _use(self, path: Path) -> None:
        self._connection = _prepared(path)
        try:
            self._load()
        except Exception:
            self.close()
            raise

    def _load(self) -> None:
        self.pins: dict[str, Pin] = {}
        self.launch: dict[str, BudgetReadback] = {}
        for row in self._connection.execute("SELECT * FROM pins"):
            pin = Pin(*row)
            self.pins[pin.target] = pin
        for target, text in self._connection.execute("SELECT * FROM launch"):
            kept = orjson.loads(text)
            table = tuple((batch, budget) for batch, budget in kept["table"])
            self.launch[target] = BudgetReadback(
                kept["budget"], tuple(kept["tiers"]), kept["max_budget"], table
            )
        flags = dict(self._connection.execute("SELECT * FROM flags"))
        self.paused = flags.get("paused") == "yes"

    def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            with self._connection:
                self._connection.execute(statement, values)
        except sqlite3.Error as error:
            self._metrics.state_errors_total.inc()
            raise StateUnavailableError(f"the state file cannot be written: {error}") from error


def _prepared(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=2.0, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
