"""Runs the cells of an experiment that are not finished yet, one at a time.

Contract: two servers stay up, one of them idle: one with JETSPEC for every static budget and for
the controller, one without speculation. Before a cell nothing runs and the prefix cache is empty;
the controller runs during its own cells alone. I/O: processes, HTTP, the experiment's folder.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.load import flush_cache, set_budget
from jetspec_sglang.client.measured import Fleet, Launch
from jetspec_sglang.client.server import Server
from loadtests.experiment import controlled, generator
from loadtests.experiment.cells import ADAPTIVE, PLAIN, Cell, Policy
from loadtests.experiment.experiment import Experiment
from loadtests.results import SUMMARY

TRIES = 2
"""A rejected cell is measured once more."""
DRAIN_S = 120.0
WARM_UP = {"arrivals": "closed", "users": "4", "seconds": "4", "warmup": "1", "max-tokens": "16"}


class Sweep:
    """Measures cells on two servers."""

    def __init__(
        self, experiment: Experiment, fleet: Fleet, out: Path, controller_port: int
    ) -> None:
        self._experiment, self._fleet, self._out = experiment, fleet, out
        self.controller_policy = experiment.controller
        self._port = controller_port
        self._start_budget: int | None = None

    def tiers(self) -> list[int]:
        """Budgets that the JETSPEC server was started with."""
        return [int(tier) for tier in self.server(Policy(ADAPTIVE)).jetspec_states()[0]["tiers"]]

    def server(self, policy: Policy) -> Server:
        """The server of a policy, started and warm."""
        launch = self._launch(policy)
        server, fresh = self._fleet.get(launch)
        if fresh:
            if launch.rule:
                self._start_budget = int(server.jetspec_states()[0]["budget"])
            folder = self._out / "warm-up" / launch.name
            generator.run(server.url, folder, {**WARM_UP, "metrics-interval": "0"})
        return server

    def _launch(self, policy: Policy) -> Launch:
        return Launch(self._experiment.dtype, None if policy.name == PLAIN else "best_first")

    def pid(self, policy: Policy) -> int:
        """The process whose children are a policy's server."""
        return self._fleet.pid(self._launch(policy))

    def measure(self, cell: Cell) -> dict[str, Any]:
        """Run one cell until it is valid, or `TRIES` times; its summary."""
        summary: dict[str, Any] = {}
        for _ in range(TRIES):
            server = self.server(cell.policy)
            drain(server)
            flush_cache(server)
            with self._policy(cell, server):
                summary = generator.run(server.url, cell.folder(self._out), self._options(cell))
            if summary["valid"]:
                break
        return summary

    def _options(self, cell: Cell) -> dict[str, str]:
        options = {**self._experiment.load, "seed": str(cell.seed), "label": cell.policy.name}
        if cell.point.kind == "rate":
            options["rate"] = f"{cell.point.value:g}"
        elif cell.point.kind == "batch":
            options |= {"arrivals": "closed", "users": f"{cell.point.value:g}"}
        return options

    @contextmanager
    def _policy(self, cell: Cell, server: Server) -> Iterator[None]:
        if cell.policy.budget is not None:
            set_budget(server, cell.policy.budget)
        if cell.policy.name != ADAPTIVE:
            yield
            return
        assert self._start_budget is not None
        set_budget(server, self._start_budget)
        folder = self._out / "controller" / f"{cell.point.name}-seed-{cell.seed}"
        shutil.rmtree(folder, ignore_errors=True)
        with ExitStack() as stack:
            stack.enter_context(
                controlled.controller(server.url, self._port, folder, policy=self.controller_policy)
            )
            yield


def drain(server: Server) -> None:
    """Wait until the server has nothing to do. CommandError after `DRAIN_S`."""
    deadline = time.monotonic() + DRAIN_S
    while loads(server.url)["busy"]:
        if time.monotonic() > deadline:
            raise CommandError(f"{server.url}: requests still run after {DRAIN_S:.0f} s")
        time.sleep(0.2)


def loads(url: str) -> dict[str, float]:
    """Requests in the server (`busy`) and its share of used KV memory, for all ranks together."""
    try:
        found = httpx.get(f"{url}/v1/loads", timeout=10).json()["loads"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise CommandError(f"{url}/v1/loads: {type(error).__name__}: {error}") from None
    return {
        "busy": sum(one["num_running_reqs"] + one["num_waiting_reqs"] for one in found),
        "used_tokens": sum(one["num_used_tokens"] for one in found),
        "token_usage": max(one["token_usage"] for one in found),
    }


def unfinished(cells: Sequence[Cell], out: Path) -> list[Cell]:
    """Cells without a valid summary."""
    return [cell for cell in cells if not (_summary(cell, out) or {}).get("valid")]


def summaries(cells: Sequence[Cell], out: Path) -> dict[Cell, dict[str, Any]]:
    """The cells that exist, including rejected ones."""
    found = {cell: _summary(cell, out) for cell in cells}
    return {cell: summary for cell, summary in found.items() if summary is not None}


def measure_all(
    sweep: Sweep, cells: Sequence[Cell], progress: Callable[[Cell, dict[str, Any]], None]
) -> None:
    for cell in cells:
        progress(cell, sweep.measure(cell))


def _summary(cell: Cell, out: Path) -> dict[str, Any] | None:
    file = cell.folder(out) / SUMMARY
    return json.loads(file.read_text()) if file.exists() else None
