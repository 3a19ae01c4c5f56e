"""SGLang's admin API: set the tree budget, read it back. Does network I/O.

This module adds what the API lacks: a deadline; at most one running call per server (the API queues
calls behind one lock); a circuit breaker; the admin key on control calls and the API key elsewhere;
a check of the body (a refusal is HTTP 200 with `[false]`, one bool per rank); and a read-back after
every change, because only the read-back proves the change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from jetspec_controller.actuators.base import ApplyResult, Outcome
from jetspec_controller.actuators.breaker import OPEN, Breaker
from jetspec_controller.actuators.messages import budget_state, changes, launch_changes, taken
from jetspec_controller.core import Action, BudgetReadback, Decision, Fault
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.http_client import FetchError, HttpClient
from jetspec_controller.settings import ControlSettings
from jetspec_controller.targets import Target

OUTCOMES = {
    Fault.TIMEOUT: Outcome.TIMEOUT,
    Fault.UNAUTHORISED: Outcome.UNAUTHORISED,
    Fault.DOWN: Outcome.DOWN,
    Fault.HTTP: Outcome.HTTP,
}


class ControlBusyError(FetchError):
    """An earlier control call to this server is still running."""

    def __init__(self) -> None:
        super().__init__(Fault.TIMEOUT, "an earlier control call is still running")


class BreakerOpenError(FetchError):
    """Control calls are held back after repeated failures."""

    def __init__(self, last: FetchError | None) -> None:
        fault = Fault.TIMEOUT if last is None else last.fault
        detail = "no reason kept" if last is None else last.detail
        super().__init__(fault, f"control calls are held back after failures: {detail}")


class SGLangActuator:
    """One actuator serves all targets. It keeps its state per target id."""

    def __init__(
        self,
        client: HttpClient,
        settings: ControlSettings,
        metrics: ControllerMetrics,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._busy: set[str] = set()
        self._breakers: dict[str, Breaker] = {}
        self._last_error: dict[str, FetchError] = {}

    async def read(self, target: Target) -> BudgetReadback:
        async with self._call(target):
            return await self._read(target)

    async def apply(self, target: Target, decision: Decision) -> ApplyResult:
        if decision.action is Action.HOLD or decision.budget is None:
            raise ValueError(f"nothing to send: {decision.action} {decision.budget}")
        return await self._send(target, changes(decision.budget, decision.table))

    async def restore(self, target: Target, launch: BudgetReadback) -> ApplyResult:
        return await self._send(target, launch_changes(launch))

    def breaker_level(self, target_id: str) -> int:
        breaker = self._breakers.get(target_id)
        return 0 if breaker is None else breaker.level(self._monotonic())

    def forget(self, target_id: str) -> None:
        self._breakers.pop(target_id, None)
        self._last_error.pop(target_id, None)

    async def _send(self, target: Target, wanted: dict[str, int]) -> ApplyResult:
        started = self._monotonic()
        try:
            async with self._call(target):
                result = await self._set(target, wanted)
        except ControlBusyError as error:
            result = ApplyResult(Outcome.BUSY, error.detail)
        except BreakerOpenError as error:
            result = ApplyResult(Outcome.BREAKER_OPEN, error.detail)
        except FetchError as error:
            result = ApplyResult(OUTCOMES.get(error.fault, Outcome.PARSE), error.detail)
        seconds = self._monotonic() - started
        return ApplyResult(result.outcome, result.detail, result.read_back, seconds)

    async def _set(self, target: Target, wanted: dict[str, int]) -> ApplyResult:
        reply = await self._client.post(
            f"{target.url}/set_internal_state",
            timeout_s=self._settings.timeout_s,
            headers=_headers(target, admin=True),
            json={"server_args": wanted},
        )
        accepted = taken(reply.json())
        try:
            state = await self._read(target)
        except FetchError as error:
            outcome = Outcome.UNCONFIRMED if accepted else Outcome.REFUSED
            return ApplyResult(outcome, f"read-back: {error.detail}")
        if not accepted:
            return ApplyResult(Outcome.REFUSED, state.last_refusal or "no reason given", state)
        if launch_changes(state) != wanted or not state.consistent:
            detail = f"asked for {wanted}, the server runs {launch_changes(state)}"
            return ApplyResult(Outcome.NOT_IN_FORCE, detail, state)
        return ApplyResult(Outcome.APPLIED, "", state)

    async def _read(self, target: Target) -> BudgetReadback:
        reply = await self._client.get(
            f"{target.url}/server_info",
            timeout_s=self._settings.timeout_s,
            headers=_headers(target, admin=False),
        )
        if reply.peer_time is not None:
            skew = self._metrics.clock_skew_seconds.labels(target.id)
            skew.set(reply.peer_time - self._clock())
        return budget_state(reply.json())

    @asynccontextmanager
    async def _call(self, target: Target) -> AsyncIterator[None]:
        """One call at a time per server, counted by its breaker. A refusal is an answer, so it
        counts as a success. A closed port counts as a success, too: it is detected quickly, and
        nothing hangs any more. So a server that is still starting is used as soon as it answers.
        """
        if target.id in self._busy:
            raise ControlBusyError
        breaker = self._breakers.setdefault(target.id, Breaker(self._settings))
        if breaker.level(self._monotonic()) == OPEN:
            raise BreakerOpenError(self._last_error.get(target.id))
        self._busy.add(target.id)
        try:
            async with self._slots:
                yield
            breaker.succeeded()
        except FetchError as error:
            self._last_error[target.id] = error
            if error.fault is Fault.DOWN:
                breaker.succeeded()
            else:
                breaker.failed(self._monotonic())
            raise
        finally:
            self._busy.discard(target.id)


def _headers(target: Target, *, admin: bool) -> dict[str, Any]:
    try:
        return target.headers(admin=admin)
    except ValueError as error:
        raise FetchError(Fault.UNAUTHORISED, str(error)) from error
