"""`Node`: what one Locust process sends, its share of an open loop or its clients of a closed one.

Contract: `begin` starts the share; every request becomes one record, given to `report` when it has
ended. I/O: HTTP through `client`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import gevent
from gevent.pool import Group

from loadtests.arrivals import Arrival
from loadtests.client import Endpoint, ask, clock_from
from loadtests.config import LoadConfig
from loadtests.prompts import Prompts
from loadtests.records import Record

_CUT_RANGE = (0.05, 2.0)


class Node:
    """`share`: this process's arrivals; `number` of `count` processes."""

    def __init__(
        self,
        config: LoadConfig,
        endpoint: Endpoint,
        share: Sequence[Arrival],
        epoch: float,
        report: Callable[[Record], None],
        *,
        number: int = 0,
        count: int = 1,
    ) -> None:
        self.config, self.endpoint = config, endpoint
        self.clock = clock_from(epoch)
        self.idle_clients = 0
        self._prompts = Prompts(config)
        self._share = list(share)
        self._report = report
        self._flying = Group()
        self._open: dict[int, Record] = {}
        self._claimed = False
        self._indices = itertools.count(number, count)

    def run_user(self) -> None:
        """The work of one Locust user: the whole share, or one client of the closed loop."""
        if self.config.open_loop:
            if not self._claimed:
                self._claimed = True
                self._send_share()
            return
        gevent.sleep(max(0.0, -self.clock()))
        limit = self.config.requests or math.inf
        while (now := self.clock()) < self.config.seconds and (i := next(self._indices)) < limit:
            self._ask(Arrival(i, now))
        self.idle_clients += 1

    def stop(self) -> list[Record]:
        """End what is under way and return its records."""
        left = list(self._open.values())
        self._flying.kill(block=False)
        self._open.clear()
        for record in left:
            record.end = self.clock()
            record.status = "unfinished"
        return left

    def _send_share(self) -> None:
        for arrival in self._share:
            gevent.sleep(max(0.0, arrival.at - self.clock()))
            self._flying.spawn(self._ask, arrival)

    def _ask(self, arrival: Arrival) -> None:
        config = self.config
        record = Record(arrival.index, arrival.at, warmup=arrival.at < config.warmup)
        record.sent = self.clock()
        record.max_tokens = min(arrival.output_tokens or config.max_tokens, config.max_tokens)
        self._open[arrival.index] = record
        prompt = self._prompts.text(arrival.index, arrival.prompt_tokens)
        ask(self.endpoint, config, record, prompt, self.clock, self._cut_after(arrival.index))
        if self._open.pop(arrival.index, None) is not None:
            self._report(record)

    def _cut_after(self, index: int) -> float | None:
        chance = random.Random(f"cut {self.config.seed} {index}")
        if chance.random() >= self.config.abort_share:
            return None
        return chance.uniform(*_CUT_RANGE)


def message(
    config: LoadConfig,
    endpoint: Endpoint,
    share: Sequence[Arrival],
    epoch: float,
    number: int,
    count: int,
) -> dict[str, Any]:
    """What a worker needs, as plain data; `from_message` reads it. The API key stays out."""
    return {
        "config": config.model_dump(),
        "share": [(one.index, one.at, one.prompt_tokens, one.output_tokens) for one in share],
        "epoch": epoch,
        "number": number,
        "count": count,
        "url": endpoint.url,
        "path": endpoint.path,
        "body": endpoint.body,
    }


def from_message(
    data: dict[str, Any], headers: dict[str, str], report: Callable[[Record], None]
) -> Node:
    """The node that a master's message asks for; `headers` hold this worker's own key."""
    config = LoadConfig.model_validate(data["config"])
    endpoint = Endpoint(data["url"], data["path"], headers, data["body"], config.api == "chat")
    return Node(
        config, endpoint, [Arrival(*one) for one in data["share"]], data["epoch"], report,
        number=data["number"], count=data["count"],
    )  # fmt: skip
