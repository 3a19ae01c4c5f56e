"""The faults of a soak and their times: budget pins, controller restarts, a Prometheus outage.

Contract: `plan` is pure; `Faults` carries the plan out in a thread and keeps what it did. If a
fault cannot be made, this is recorded and the soak continues. I/O: through the children.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetspec_sglang.client.errors import CommandError
from loadtests.experiment import controlled

PIN_EVERY_S, RESTART_EVERY_S, OUTAGE_EVERY_S = 45.0, 150.0, 400.0
PIN_S, OUTAGE_S = 15.0, 45.0


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind`: pin, unpin, kill_controller, stop_prometheus, start_prometheus."""

    at: float
    kind: str
    budget: int | None = None


def plan(seconds: float, seed: int, tiers: Sequence[int]) -> list[Fault]:
    """Faults in order. Each kind comes at least once in a run of any length."""
    chance = random.Random(f"faults {seed}")
    faults = []
    for at in _times(seconds, PIN_EVERY_S):
        faults += [
            Fault(at, "pin", chance.choice(list(tiers))),
            Fault(min(at + PIN_S, seconds), "unpin"),
        ]
    faults += [Fault(at, "kill_controller") for at in _times(seconds, RESTART_EVERY_S)]
    for at in _times(seconds, OUTAGE_EVERY_S):
        end = min(at + OUTAGE_S, at + seconds / 4)
        faults += [Fault(at, "stop_prometheus"), Fault(end, "start_prometheus")]
    return sorted(faults, key=lambda one: one.at)


class Faults:
    """Makes the faults of a plan, from `begin` to `stop`. `folder` is the controller's."""

    def __init__(
        self,
        faults: Sequence[Fault],
        controller: controlled.Child,
        prometheus: controlled.Child,
        port: int,
        folder: Path,
    ) -> None:
        self.made: list[dict[str, Any]] = []
        self._faults = list(faults)
        self._controller, self._prometheus = controller, prometheus
        self._port, self._folder = port, folder
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        start = time.monotonic()
        for fault in self._faults:
            if self._ended.wait(max(0.0, start + fault.at - time.monotonic())):
                return
            error = ""
            try:
                self._make(fault)
            except CommandError as caught:
                error = str(caught)
            entry = {"at": fault.at, "kind": fault.kind, "budget": fault.budget, "error": error}
            self.made.append(entry)
        # What this thread started ends with it.
        self._ended.wait()

    def _make(self, fault: Fault) -> None:
        if fault.kind in ("pin", "unpin"):
            controlled.pin(self._port, self._folder, fault.budget, PIN_S)
        elif fault.kind == "kill_controller":
            self._controller.stop(signal.SIGKILL)
            self._controller.start()
        elif fault.kind == "stop_prometheus":
            self._prometheus.stop(signal.SIGKILL)
        else:
            self._prometheus.start()


def _times(seconds: float, every: float) -> list[float]:
    count = max(1, int(seconds // every))
    return [seconds * (i + 0.5) / count for i in range(count)]
