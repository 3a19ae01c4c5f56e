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

from jetspec_controller.actuators import Outcome
from jetspec_controller.audit import AuditLog, Event
from jetspec_controller.components import Components
from jetspec_controller.core import Decision, Governor, PolicyConfig, TargetObservation, decide
from jetspec_controller.core.budgets import running
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.managed import DecisionSummary, ManagedTarget, summary
from jetspec_controller.recorder import Recorder
from jetspec_controller.settings import policy_for
from jetspec_controller.state_file import StateFile, StateUnavailableError
from jetspec_controller.target_metrics import export, start_counters
from jetspec_controller.targets import Target
from jetspec_controller.writes import SPAN_S

logger = logging.getLogger(__name__)

PATIENCE = 0.5
"""Share of an interval that a tick waits for reads, and again for applies."""


class ControlLoop:
    """One loop for all servers. `fleet` is its knowledge by target id. `last_tick` is the monotonic
    time when the last tick ended. `observed` says whether any server was ever read.
    """

    def __init__(
        self,
        components: Components,
        *,
        state: StateFile,
        metrics: ControllerMetrics,
        audit: AuditLog,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = components.settings
        self.discovery = components.discovery
        self.source = components.source
        self.actuator = components.actuator
        self.state = state
        self.metrics = metrics
        self.audit = audit
        self.recorder = recorder
        self.clock = clock
        self.patience_s = PATIENCE * self.settings.policy.interval_s
        self.fleet: dict[str, ManagedTarget] = {}
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
        for managed in fleet:
            try:
                applies += self._decide(managed, observations[managed.target.id], now)
            except Exception:
                # One server's trouble must not leave the others without a decision.
                logger.exception("%s: no decision", managed.target.id)
                self.metrics.decision_errors_total.labels(managed.target.id).inc()
        await _patiently(applies, self.patience_s)
        if fleet and all(managed.ready for managed in fleet):
            self.metrics.last_success_timestamp_seconds.set(now)
        self.observed = self.observed or any(managed.ready for managed in fleet)
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

    async def use(self, components: Components) -> None:
        """Continue with other components between two ticks. The knowledge about the servers is kept."""
        async with self._ticking:
            await self._drain()
            self.settings = components.settings
            self.patience_s = PATIENCE * self.settings.policy.interval_s
            self.discovery, self.source = components.discovery, components.source
            self.actuator = components.actuator

    async def stop(self, *, restore: bool) -> None:
        """End running calls. With `restore`, give servers their launch budgets back."""
        await self._drain()
        if restore:
            await asyncio.gather(*map(self._restore, self.fleet.values()))

    async def _drain(self) -> None:
        """Wait for running control calls, and cancel those that do not end."""
        tasks = [
            task
            for managed in self.fleet.values()
            for task in (managed.read_task, managed.apply_task)
            if task is not None
        ]
        await _patiently(tasks, self.settings.control.timeout_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for managed in self.fleet.values():
            managed.read_task = managed.apply_task = None

    def _update_fleet(self, targets: Sequence[Target]) -> None:
        named = {target.id: target for target in targets}
        gone = [name for name in self.fleet if name not in named]
        for name in gone:
            managed = self.fleet.pop(name)
            for task in (managed.read_task, managed.apply_task):
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
                self.fleet[name] = ManagedTarget(target, deque(maxlen=self.settings.api.history))
                start_counters(self.metrics, name)
                self.audit.write(
                    Event.TARGET_ADDED, target=name, url=target.url, origin=target.origin
                )
        self.metrics.targets.set(len(self.fleet))

    def _expire_pins(self, now: float) -> None:
        for pin in self.state.expire_pins(now):
            self.audit.write(Event.PIN_EXPIRED, target=pin.target, budget=pin.budget)

    async def _observe(
        self, fleet: Sequence[ManagedTarget], now: float
    ) -> dict[str, TargetObservation]:
        started = time.monotonic()
        observations = await self.source.observe([managed.target for managed in fleet], now)
        self.metrics.scrape_seconds.observe(time.monotonic() - started)
        return dict(observations)

    async def _start_reads(self, fleet: Sequence[ManagedTarget]) -> None:
        for managed in fleet:
            if managed.read_task is None:
                managed.read_task = asyncio.create_task(self.actuator.read(managed.target))
        reads = [managed.read_task for managed in fleet if managed.read_task is not None]
        await _patiently(reads, self.patience_s)

    def _decide(
        self, managed: ManagedTarget, observation: TargetObservation, now: float
    ) -> list[asyncio.Task[None]]:
        """Decide for one server and start its control call, if any. Returns this call."""
        policy, mode = self.policy(managed.target)
        steered = policy.governor not in (Governor.OFF, Governor.ADVISORY)
        if managed.take_read(now, steered=steered):
            self.audit.write(Event.RESTARTED, target=managed.target.id)
        if managed.newly_contested(now):
            self._report_second_writer(managed, now)
        self._remember_launch(managed)
        observation = managed.observed(observation)
        if self.recorder is not None:
            self.recorder.write(now, policy, observation)
        decision, managed.state = decide(policy, observation, managed.state, now)
        previous, managed.decision, managed.mode = managed.decision, decision, mode
        self._decisions += 1
        entry = summary(f"{self._started}-{self._decisions}", decision, mode, managed)
        managed.history.append(entry)
        export(
            self.metrics,
            managed,
            policy,
            self.state.pins.get(managed.target.id),
            self.actuator.breaker_level(managed.target.id),
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
        if managed.apply_task is not None and not managed.apply_task.done():
            entry.result, entry.detail = Outcome.BUSY, "the last decision is still being sent"
            self.metrics.applies_total.labels(decision.target, Outcome.BUSY).inc()
            return []
        managed.apply_task = asyncio.create_task(self._apply(managed, decision, entry))
        return [managed.apply_task]

    async def _apply(
        self, managed: ManagedTarget, decision: Decision, entry: DecisionSummary
    ) -> None:
        managed.writes.in_force = None
        result = await self.actuator.apply(managed.target, decision)
        managed.last_apply = result
        managed.writes.sent(result)
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

    def _report_second_writer(self, managed: ManagedTarget, now: float) -> None:
        name, found = managed.target.id, managed.writes.in_force
        overwrites = managed.writes.overwrites(now)
        logger.error(
            "%s: somebody else changed its budget %d times within %.0f minutes: another controller "
            "or a script; it now runs %s",
            name,
            overwrites,
            SPAN_S / 60,
            found,
        )
        self.audit.write(Event.SECOND_WRITER, target=name, overwrites=overwrites, found=found)

    def _remember_launch(self, managed: ManagedTarget) -> None:
        name, state = managed.target.id, managed.read_back
        if state is None or name in self.state.launch:
            return
        try:
            self.state.remember_launch(name, state)
        except StateUnavailableError as error:
            self.state.launch[name] = state
            logger.error("%s: its launch budget is kept in memory only: %s", name, error)

    async def _restore(self, managed: ManagedTarget) -> None:
        launch = self.state.launch.get(managed.target.id)
        governor = policy_for(self.settings.policy, managed.target.policy).governor
        if launch is None or governor in (Governor.OFF, Governor.ADVISORY):
            return
        # The read-back is older than the last control call; `in_force` is not.
        if managed.writes.in_force == running(launch):
            return
        result = await self.actuator.restore(managed.target, launch)
        self.audit.write(
            Event.APPLIED if result.outcome is Outcome.APPLIED else Event.APPLY_FAILED,
            target=managed.target.id,
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
