"""The running controller: its components, its loop, and the actions of people. No HTTP here.

Starts and stops the loop, swaps the components on a reload, and carries out pins and pauses. A change by
a person first goes to the state file. Then it takes effect. Then it goes to the audit log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from jetspec_controller import __version__
from jetspec_controller.audit import AuditLog, Event
from jetspec_controller.components import build_components
from jetspec_controller.core import Governor, PolicyConfig
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.loop import ControlLoop
from jetspec_controller.managed import ManagedTarget
from jetspec_controller.recorder import Recorder
from jetspec_controller.settings import (
    OnShutdown,
    Settings,
    SettingsError,
    in_force,
    load,
    policy_for,
)
from jetspec_controller.state_file import Pin, StateFile
from jetspec_controller.tokens import Tokens

logger = logging.getLogger(__name__)

LIVE_TICKS = 5
LIVE_S = 30.0


class BudgetNotAllowedError(ValueError):
    """A pin outside the range that the server and the policy allow."""


class Service:
    """`start` before use, `stop` after it; between them, all methods may be called at any time.
    `looping` runs until `stop`. If it ends earlier, it has failed.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        config_path: Path | None = None,
        flags: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.tokens = Tokens.load(settings.api)
        self.metrics = ControllerMetrics()
        self.clock = clock
        self._config_path = config_path
        self._flags = dict(flags or {})
        self._reloading = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.looping: asyncio.Task[None] | None = None
        self.restart_needed: tuple[str, ...] = ()
        self._began = time.monotonic()

    async def start(self, *, run: bool = True) -> None:
        """Open everything; with `run` start the loop.

        Raises SettingsError, OSError or sqlite3.Error, and leaves nothing open then.
        """
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise
        if run:
            self.looping = asyncio.create_task(self.loop.run())

    async def _open(self) -> None:
        settings = self.settings
        self.audit = AuditLog(settings.audit, self.metrics, self.clock)
        self._stack.callback(self.audit.close)
        self.state = StateFile(settings.state.path, self.metrics)
        self._stack.callback(self.state.close)
        recorder = None if settings.record is None else Recorder(settings.record)
        if recorder is not None:
            self._stack.callback(recorder.close)
        self._components = await build_components(settings, self.metrics, self.clock)
        self.loop = ControlLoop(
            self._components,
            state=self.state,
            metrics=self.metrics,
            audit=self.audit,
            recorder=recorder,
            clock=self.clock,
        )
        self.metrics.show_config(settings.digest)
        self.metrics.paused.set(self.state.paused)
        self.audit.write(Event.STARTED, version=__version__, config=settings.digest)

    async def stop(self) -> None:
        """End the loop; restore launch budgets if so configured."""
        await _cancel(self.looping)
        restore = self.settings.on_shutdown is OnShutdown.RESTORE
        await self.loop.stop(restore=restore)
        self.audit.write(Event.STOPPED, on_shutdown=self.settings.on_shutdown)
        await self._components.stack.aclose()
        await self._stack.aclose()

    @property
    def alive(self) -> bool:
        """Whether the loop has ticked lately."""
        interval = self.settings.policy.interval_s
        longest = max(LIVE_TICKS * interval, LIVE_S)
        last = self.loop.last_tick or self._began
        return time.monotonic() - last < longest

    @property
    def ready(self) -> bool:
        """Whether any server has been read successfully since the start."""
        return self.loop.observed

    def managed(self, target_id: str) -> ManagedTarget | None:
        return self.loop.fleet.get(target_id)

    def pin(
        self, managed: ManagedTarget, budget: int, ttl_s: float, reason: str, actor: str
    ) -> Pin:
        """Raises BudgetNotAllowedError, StateUnavailableError."""
        policy = policy_for(self.settings.policy, managed.target.policy)
        self._check_pin(managed, policy, budget)
        now = self.clock()
        pin = Pin(managed.target.id, budget, actor, reason, now, now + ttl_s)
        self.state.set_pin(pin)
        self.audit.write(
            Event.PIN_SET,
            actor=actor,
            target=pin.target,
            budget=budget,
            expires_at=pin.expires_at,
            reason=reason,
        )
        return pin

    def unpin(self, target_id: str, actor: str) -> bool:
        """False if there was no pin. Raises StateUnavailableError."""
        removed = self.state.remove_pin(target_id)
        if removed is not None:
            self.audit.write(Event.PIN_REMOVED, actor=actor, target=target_id)
        return removed is not None

    def set_paused(self, paused: bool, actor: str) -> None:
        """Raises StateUnavailableError."""
        self.state.set_paused(paused)
        self.metrics.paused.set(paused)
        self.audit.write(Event.PAUSED if paused else Event.RESUMED, actor=actor)

    async def reload(self, actor: str) -> tuple[str, ...]:
        """Reload the file. Returns the changed keys that wait for a restart.

        If anything is wrong, raises SettingsError and changes nothing.
        """
        async with self._reloading:
            try:
                wanted = load(self._config_path, self._flags)
                settings, waiting = in_force(wanted, self.settings)
                tokens = Tokens.load(settings.api)
                components = await build_components(settings, self.metrics, self.clock)
            except SettingsError as error:
                self.metrics.config_last_reload_success.set(0)
                self.audit.write(Event.CONFIG_REFUSED, actor=actor, detail=str(error))
                raise
            old = self._components
            self._components, self.settings, self.tokens = components, settings, tokens
            await self.loop.use(components)
            await old.stack.aclose()
            self.restart_needed = waiting
            self.metrics.show_config(settings.digest)
            self.metrics.config_last_reload_success.set(1)
            self.metrics.config_restart_needed.set(len(waiting))
            self.audit.write(
                Event.CONFIG_RELOADED, actor=actor, config=settings.digest, restart_needed=waiting
            )
            return waiting

    def _check_pin(self, managed: ManagedTarget, policy: PolicyConfig, budget: int) -> None:
        if policy.governor is Governor.OFF:
            raise BudgetNotAllowedError(f"{managed.target.id} has governor off")
        low, high = policy.min_budget, policy.max_budget
        if managed.read_back is not None:
            high = min(high, managed.read_back.max_budget)
        if not low <= budget <= high:
            raise BudgetNotAllowedError(f"budget is {budget}; allowed is {low} to {high}")


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
