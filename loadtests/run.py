"""`Run`: one load test in the leading process, from the first arrival to the report.

Contract: `add` takes the records of all workers; `finish` writes the report once and returns the
exit status. I/O: the server's `/metrics` or a Prometheus, and the report's folder.
"""

from __future__ import annotations

import logging
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from loadtests import figures, results, series
from loadtests.arrivals import Schedule
from loadtests.client import clock_from
from loadtests.config import LoadConfig
from loadtests.preflight import ServerFacts
from loadtests.records import Record, lost
from loadtests.summary import summarise, verdict
from loadtests.thresholds import broken

OK, FAILED, WRONG, REJECTED = 0, 1, 2, 3
"""Exit statuses: all is well; requests failed or a limit is not met; wrong options or no server;
the measurement itself is not valid."""

logger = logging.getLogger("loadtests")


@dataclass
class Run:
    """`schedule` is None in a closed loop of `clients`."""

    config: LoadConfig
    host: str
    facts: ServerFacts
    schedule: Schedule | None
    clients: int
    epoch: float
    folder: Path
    idle_clients: int = 0
    records: list[Record] = field(default_factory=list)
    samples: list[series.Sample] = field(default_factory=list)
    status: int | None = None

    def __post_init__(self) -> None:
        self.clock = clock_from(self.epoch)
        self._process = psutil.Process()
        self._cpu = _cpu_seconds(self._process)
        self._started = time.perf_counter()

    @property
    def last_arrival(self) -> float:
        """End of the arrivals, in seconds after the start."""
        if self.schedule is None:
            done = self.config.requests and self.idle_clients >= self.clients
            return (
                max((one.due for one in self.records), default=0.0) if done else self.config.seconds
            )
        if self.config.requests or self.config.arrivals == "trace":
            return self.schedule.arrivals[-1].at
        return self.config.seconds

    def add(self, record: Record) -> None:
        self.records.append(record)

    def over(self) -> bool:
        """Whether everything was answered, or the wait for answers took too long."""
        now = self.clock()
        if now > self.last_arrival + self.config.drain_timeout:
            return True
        if now < self.last_arrival:
            return False
        if self.schedule is None:
            return self.idle_clients >= self.clients
        return len(self.records) >= len(self.schedule.arrivals)

    def look(self) -> None:
        """Add one sample of the server's own figures. A failed read is left out."""
        base = self.host.rstrip("/").removesuffix("/v1")
        try:
            with urllib.request.urlopen(f"{base}/metrics", timeout=5) as answer:
                text = answer.read().decode(errors="replace")
        except OSError:
            return
        self.samples.append(series.parse_sample(text, self.clock()))

    def finish(self, unfinished: list[Record]) -> int:
        """Judge and write; later calls return the same status."""
        if self.status is not None:
            return self.status
        self.status = REJECTED
        share = (_cpu_seconds(self._process) - self._cpu) / (time.perf_counter() - self._started)
        missing = self._missing(unfinished)
        records = sorted([*self.records, *unfinished, *missing], key=lambda one: one.due)
        samples = self._samples()
        for record in records:
            record.budget_start = series.budget_at(samples, record.sent)
            record.budget_end = series.budget_at(samples, record.end)
        summary = self._described() | summarise(self.config, records, self.last_arrival)
        summary["load_generator_cpu_share"] = share
        now = self.clock()
        reasons = verdict(
            self.config, summary, lost=len(missing),
            interrupted_at=now if now < self.last_arrival else None,
        )  # fmt: skip
        limits = broken(self.config.thresholds, summary)
        summary |= {"valid": not reasons, "rejected_because": reasons, "broken_thresholds": limits}
        results.write(self.folder, summary, records, samples)
        logger.info("%s\nreport: %s", figures.text(summary), self.folder)
        self.status = self._judged(summary, limits)
        return self.status

    def _judged(self, summary: dict[str, Any], limits: list[str]) -> int:
        if not summary["valid"]:
            return REJECTED
        if limits:
            return FAILED
        judged = any(one.metric == "failure_rate" for one in self.config.thresholds)
        return OK if judged or not summary["failed"] else FAILED

    def _missing(self, unfinished: list[Record]) -> list[Record]:
        """Requests that were due by now and that no worker reported."""
        if self.schedule is None:
            return []
        known = {one.index for one in (*self.records, *unfinished)}
        now = self.clock()
        missing = [
            lost(one.index, one.at, "no worker reported it")
            for one in self.schedule.arrivals
            if one.index not in known and one.at <= now
        ]
        for record in missing:
            record.warmup = record.due < self.config.warmup
        return missing

    def _samples(self) -> list[series.Sample]:
        if not self.config.prometheus:
            return self.samples
        try:
            return series.from_prometheus(
                self.config.prometheus, self.config.selector, self.epoch, time.time()
            )
        except (OSError, ValueError, KeyError) as error:
            logger.warning("no budget from --prometheus %s: %s", self.config.prometheus, error)
            return self.samples

    def _described(self) -> dict[str, Any]:
        return {
            "label": self.config.label or self.facts.model,
            "backend": "loadtests",
            "model": self.facts.model,
            "base_url": self.host,
            "started": self.epoch,
            "request_rate": self._rate(),
            "max_concurrency": None if self.config.open_loop else self.clients,
            "broken_trace_lines": self.schedule.broken_lines if self.schedule else 0,
            "scheduled": len(self.schedule.arrivals) if self.schedule else None,
            "config": self.config.model_dump(exclude={"api_key_file"}),
            "server_info": self.facts.info,
            "git": results.git_commit(),
        }

    def _rate(self) -> float | str | None:
        if not self.config.open_loop:
            return None
        return "trace" if self.config.arrivals == "trace" else self.config.rate


def _cpu_seconds(process: psutil.Process) -> float:
    """CPU of the process and its children (Locust's workers on this machine)."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total
