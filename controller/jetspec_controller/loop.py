"""The control loop: in each interval, read, decide and apply for every server.

The only place where sources, the core, the actuator and the state file meet. The time of a tick is
bounded: it waits for control calls for a limited time, and lets the others finish later. So one
server that hangs does not delay the others. It does no I/O itself; the parts that it calls do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from .actuators import Outcome
from .audit import AuditLog, Event
from .core import Decision, Governor, PolicyConfig, TargetObservation, decide
from .metrics import ControllerMetrics
from .parts import Parts
from .recorder import Recorder
from .settings import policy_for
from .show import expect, show
from .state_file import StateFile, StateUnavailableError
from .targets import Target
from .tracked import DecisionSummary, Tracked, summary
from .writes import SPAN_S

logger = logging.getLogger(__name__)

PATIENCE = 0.5
"""Share of an interval that a tick waits for reads, and again for applies."""


class ControlLoop:
    """One loop for all servers. `fleet` is its knowledge by target id. `last_tick` is the monotonic
    time when the last tick ended. `observed` says whether any server was ever read.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        state: StateFile,
        metrics: ControllerMetrics,
        audit: AuditLog,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = parts.settings
        self.discovery = parts.discovery
        self.source = parts.source
        self.actuator = parts.actuator
        self.state = state
        self.metrics = metrics
        self.audit = audit
        self.recorder = recorder
        self.clock = clock
        self.patience_s = PATIENCE * self.settings.policy.interval_s
        self.fleet: dict[str, Tracked] = {}
        self.last_tick: float | None = None
        self.observed = False
        self._started = format(int(clock()), "x")
        self._decisions = 0
        self._ticking = asyncio.Lock()

    async def run(self) -> None:
        """Tick until cancelled. A failed tick is logged, and the loop continues."""
        due = time.monotonic()
        while True:
            started = time.monotonic()
            self.metrics.loop_lag_seconds.set(max(0.0, started - due))
            try:
                await self.tick()
            except Exception:
                logger.exception("a tick failed")
            due = max(started, due) + self.settings.policy.interval_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def tick(self) -> None:
        """One round over all servers."""
        async with self._ticking:
            await self._tick()

    async def _tick(self) -> None:
        started = time.monotonic()
        now = self.clock()
        self._update_fleet(await self.discovery.targets(now))
        self._expire_pins(now)
        fleet = list(self.fleet.values())
        observations, _ = await asyncio.gather(self._observe(fleet, now), self._start_reads(fleet))
        applies = []
        for tracked in fleet:
            try:
                applies += self._decide(tracked, observations[tracked.target.id], now)
            except Exception:
                # One server's trouble must not leave the others without a decision.
                logger.exception("%s: no decision", tracked.target.id)
                self.metrics.decision_errors_total.labels(tracked.target.id).inc()
        await _patiently(applies, self.patience_s)
        if fleet and all(tracked.ready for tracked in fleet):
            self.metrics.last_success_timestamp_seconds.set(now)
        self.observed = self.observed or any(tracked.ready for tracked in fleet)
        self.last_tick = time.monotonic()
        self.metrics.loop_duration_seconds.observe(time.monotonic() - started)

    def policy(self, target: Target) -> tuple[PolicyConfig, str]:
        """The policy in force for a server, and the name of its mode: the governor, or what
        overrides it (`paused`, `pinned`).
        """
        policy = policy_for(self.settings.policy, target.policy)
        pin = self.state.pins.get(target.id)
        if policy.governor is Governor.OFF:
            return policy, Governor.OFF
        if self.state.paused:
            return policy.model_copy(update={"governor": Governor.ADVISORY}), "paused"
        if pin is not None:
            pinned = {"governor": Governor.PINNED, "pinned_budget": pin.budget}
            return policy.model_copy(update=pinned), Governor.PINNED
        return policy, policy.governor

    async def use(self, parts: Parts) -> None:
        """Continue with other parts between two ticks. The knowledge about the servers is kept."""
        async with self._ticking:
            await self._drain()
            self.settings = parts.settings
            self.patience_s = PATIENCE * self.settings.policy.interval_s
            self.discovery, self.source = parts.discovery, parts.source
            self.actuator = parts.actuator

    async def stop(self, *, restore: bool) -> None:
        """End running calls. With `restore`, give servers their launch budgets back."""
        await self._drain()
        if restore:
            await asyncio.gather(*map(self._restore, self.fleet.values()))

    async def _drain(self) -> None:
        """Wait for running control calls, and cancel those that do not end."""
        tasks = [
            task
            for tracked in self.fleet.values()
            for task in (tracked.read_task, tracked.apply_task)
            if task is not None
        ]
        await _patiently(tasks, self.settings.control.timeout_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for tracked in self.fleet.values():
            tracked.read_task = tracked.apply_task = None

    def _update_fleet(self, targets: Sequence[Target]) -> None:
        named = {target.id: target for target in targets}
        gone = [name for name in self.fleet if name not in named]
        for name in gone:
            tracked = self.fleet.pop(name)
            for task in (tracked.read_task, tracked.apply_task):
                if task is not None:
                    task.cancel()
            self.actuator.forget(name)
            self.metrics.forget(name)
            self.state.forget_launch(name)
            self.audit.write(Event.TARGET_REMOVED, target=name)
        self.source.forget(gone)
        for name, target in named.items():
            if name in self.fleet:
                self.fleet[name].target = target
            else:
                self.fleet[name] = Tracked(target, deque(maxlen=self.settings.api.history))
                expect(self.metrics, name)
                self.audit.write(
                    Event.TARGET_ADDED, target=name, url=target.url, origin=target.origin
                )
        self.metrics.targets.set(len(self.fleet))

    def _expire_pins(self, now: float) -> None:
        for pin in self.state.expire_pins(now):
            self.audit.write(Event.PIN_EXPIRED, target=pin.target, budget=pin.budget)

    async def _observe(self, fleet: Sequence[Tracked], now: float) -> dict[str, TargetObservation]:
        started = time.monotonic()
        observations = await self.source.observe([tracked.target for tracked in fleet], now)
        self.metrics.scrape_seconds.observe(time.monotonic() - started)
        return dict(observations)

    async def _start_reads(self, fleet: Sequence[Tracked]) -> None:
        for tracked in fleet:
            if tracked.read_task is None:
                tracked.read_task = asyncio.create_task(self.actuator.read(tracked.target))
        reads = [tracked.read_task for tracked in fleet if tracked.read_task is not None]
        await _patiently(reads, self.patience_s)

    def _decide(
        self, tracked: Tracked, observation: TargetObservation, now: float
    ) -> list[asyncio.Task[None]]:
        """Decide for one server and start its control call, if any. Returns this call."""
        policy, mode = self.policy(tracked.target)
        steered = policy.governor not in (Governor.OFF, Governor.ADVISORY)
        if tracked.take_read(now, steered=steered):
            self.audit.write(Event.RESTARTED, target=tracked.target.id)
        if tracked.newly_contested(now):
            self._report_second_writer(tracked, now)
        self._remember_launch(tracked)
        observation = tracked.observed(observation)
        if self.recorder is not None:
            self.recorder.write(now, policy, observation)
        decision, tracked.state = decide(policy, observation, tracked.state, now)
        previous, tracked.decision, tracked.mode = tracked.decision, decision, mode
        self._decisions += 1
        entry = summary(f"{self._started}-{self._decisions}", decision, mode, tracked)
        tracked.history.append(entry)
        show(
            self.metrics,
            tracked,
            policy,
            self.state.pins.get(tracked.target.id),
            self.actuator.breaker_level(tracked.target.id),
        )
        if decision.applies or previous is None or _wanted(previous) != _wanted(decision):
            self.audit.write(
                Event.DECIDED,
                target=decision.target,
                decision=entry.id,
                mode=mode,
                action=decision.action,
                reason=decision.reason,
                budget=decision.budget,
                table=decision.table,
                batch=entry.batch,
                gain=entry.gain,
            )
        if not decision.applies:
            return []
        if tracked.apply_task is not None and not tracked.apply_task.done():
            entry.result, entry.detail = Outcome.BUSY, "the last decision is still being sent"
            self.metrics.applies_total.labels(decision.target, Outcome.BUSY).inc()
            return []
        tracked.apply_task = asyncio.create_task(self._apply(tracked, decision, entry))
        return [tracked.apply_task]

    async def _apply(self, tracked: Tracked, decision: Decision, entry: DecisionSummary) -> None:
        tracked.writes.plan = None
        result = await self.actuator.apply(tracked.target, decision)
        tracked.last_apply = result
        tracked.writes.sent(result)
        entry.result, entry.detail = result.outcome, result.detail
        name, outcome = decision.target, result.outcome
        self.metrics.applies_total.labels(name, outcome).inc()
        self.metrics.apply_seconds.observe(result.seconds)
        self.audit.write(
            Event.APPLIED if outcome is Outcome.APPLIED else Event.APPLY_FAILED,
            target=name,
            decision=entry.id,
            result=outcome,
            detail=result.detail,
            before=entry.budget_before,
            after=None if result.read_back is None else result.read_back.budget,
            seconds=round(result.seconds, 4),
        )

    def _report_second_writer(self, tracked: Tracked, now: float) -> None:
        name, found = tracked.target.id, tracked.writes.plan
        overwrites = tracked.writes.overwrites(now)
        logger.error(
            "%s: somebody else changed its budget %d times within %.0f minutes: another controller "
            "or a script; it now runs %s",
            name,
            overwrites,
            SPAN_S / 60,
            found,
        )
        self.audit.write(Event.SECOND_WRITER, target=name, overwrites=overwrites, found=found)

    def _remember_launch(self, tracked: Tracked) -> None:
        name, state = tracked.target.id, tracked.read_back
        if state is None or name in self.state.launch:
            return
        try:
            self.state.remember_launch(name, state)
        except StateUnavailableError as error:
            self.state.launch[name] = state
            logger.error("%s: its launch budget is kept in memory only: %s", name, error)

    async def _restore(self, tracked: Tracked) -> None:
        launch, now = self.state.launch.get(tracked.target.id), tracked.read_back
        if launch is None or (
            now is not None and (now.budget, now.table) == (launch.budget, launch.table)
        ):
            return
        result = await self.actuator.restore(tracked.target, launch)
        self.audit.write(
            Event.APPLIED if result.outcome is Outcome.APPLIED else Event.APPLY_FAILED,
            target=tracked.target.id,
            decision="restore",
            result=result.outcome,
            detail=result.detail,
            after=launch.budget,
        )


def _wanted(decision: Decision) -> tuple[object, ...]:
    return decision.budget, decision.table


async def _patiently(tasks: Iterable[asyncio.Task[object]], seconds: float) -> None:
    """Wait for the tasks for a while; the rest run on."""
    pending = list(tasks)
    if pending:
        await asyncio.wait(pending, timeout=seconds)
