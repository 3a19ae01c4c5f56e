"""Locust users that load an OpenAI-compatible server with streamed requests.

    locust -f loadtests/locustfile.py --headless --host http://127.0.0.1:30000 --rate 4

Open loop (the default): one source per process sends every request at its own time, even if earlier
ones were not answered yet. Closed loop: `--arrivals closed --users 8`. See docs/loadtests.md.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gevent
from locust import LoadTestShape, User, events, task  # patches the standard library: first
from locust.runners import MasterRunner, WorkerRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from loadtests.arrivals import schedule
from loadtests.client import Endpoint
from loadtests.config import ConfigError, LoadConfig
from loadtests.node import Node, from_message, message
from loadtests.options import add_options, config_of
from loadtests.preflight import api_key, look
from loadtests.prompts import Prompts
from loadtests.records import Record
from loadtests.run import OK, WRONG, Run
from loadtests.traces import TraceError

BEGIN, RECORD, IDLE = "loadtests_begin", "loadtests_record", "loadtests_idle"
LEAD_S = {"local": 0.5, "workers": 2.0}
"""Seconds between the start of the users and time 0."""

logger = logging.getLogger("loadtests")


class State:
    """The state of the test in this process: its share and, in the leading process, the run."""

    node: Node | None = None
    run: Run | None = None
    ended = False


state = State()


class OpenAIUser(User):
    """A source of an open loop, or one client of a closed one."""

    @task
    def send(self) -> None:
        while state.node is None:
            gevent.sleep(0.05)
        state.node.run_user()
        if isinstance(self.environment.runner, WorkerRunner):
            self.environment.runner.send_message(IDLE, {})
        elif state.run is not None:
            state.run.idle_clients += 1
        while True:  # the shape ends the test
            gevent.sleep(3600)


class UntilAnswered(LoadTestShape):
    """Keeps the users until every request has ended."""

    use_common_options = True

    def tick(self) -> tuple[int, float] | None:
        assert self.runner is not None
        if state.run is not None and (state.ended or state.run.over()):
            return None
        users = _users(self.runner.environment)
        return users, float(users)


@events.init_command_line_parser.add_listener
def _options(parser: Any) -> None:
    add_options(parser)


@events.init.add_listener
def _check(environment: Any, runner: Any, **_: Any) -> None:
    """Refuse what cannot work before anything is sent."""
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    if isinstance(runner, WorkerRunner):
        runner.register_message(BEGIN, _begin_share)
        return
    if isinstance(runner, MasterRunner):
        runner.register_message(RECORD, _take_record)
        runner.register_message(IDLE, _take_idle)
    if environment.parsed_options.headless or environment.parsed_options.autostart:
        try:
            _planned(environment)
        except (ConfigError, TraceError) as error:
            print(f"loadtests: {error}", file=sys.stderr)
            raise SystemExit(WRONG) from None


@events.test_start.add_listener
def _start(environment: Any, **_: Any) -> None:
    runner = environment.runner
    if isinstance(runner, WorkerRunner):
        return
    try:
        config, facts = _planned(environment)
        planned = schedule(config) if config.open_loop else None
    except (ConfigError, TraceError) as error:
        logger.error("%s", error)
        environment.process_exit_code = WRONG
        gevent.spawn(runner.quit if environment.parsed_options.headless else runner.stop)
        return
    state.ended = False
    # Locust handles SIGTERM only once a shape has ended.
    gevent.signal_handler(signal.SIGTERM, _end)
    workers = list(runner.clients.ready) if isinstance(runner, MasterRunner) else []
    epoch = time.time() + LEAD_S["workers" if workers else "local"]
    host = environment.host.rstrip("/")
    endpoint = Endpoint.of(config, host, facts.model, api_key(config), sglang=facts.sglang)
    arrivals = planned.arrivals if planned else ()
    state.run = Run(config, host, facts, planned, _users(environment), epoch, _folder(config))
    if workers:
        for number, worker in enumerate(workers):
            share = arrivals[number :: len(workers)]
            data = message(config, endpoint, share, epoch, number, len(workers))
            runner.send_message(BEGIN, data, worker.id)
    else:
        state.node = Node(config, endpoint, arrivals, epoch, _reporter(environment))
    if config.metrics_interval:
        gevent.spawn(_observe, state.run)


@events.test_stop.add_listener
def _stop(environment: Any, **_: Any) -> None:
    left = state.node.stop() if state.node is not None else []
    state.node = None
    if isinstance(environment.runner, WorkerRunner):
        for record in left:
            environment.runner.send_message(RECORD, asdict(record))
    if state.run is not None:
        _finish(environment, left)


@events.quitting.add_listener
def _exit(environment: Any, **_: Any) -> None:
    """Ctrl-C and SIGTERM come here first: report what there is."""
    if state.run is not None and state.run.status is None:
        _finish(environment, state.node.stop() if state.node is not None else [])


def _end() -> None:
    state.ended = True


def _finish(environment: Any, left: list[Record]) -> None:
    assert state.run is not None
    run, state.run = state.run, None
    status = run.finish(left)
    if environment.process_exit_code in (None, OK):
        environment.process_exit_code = status


def _planned(environment: Any) -> tuple[LoadConfig, Any]:
    values = dict(vars(environment.parsed_options))
    if values.get("run_time"):
        values["seconds"] = values["run_time"]
    config = config_of(values)
    Prompts(config)
    if config.open_loop:
        schedule(config)
    return config, look(config, environment.host)


def _users(environment: Any) -> int:
    """Sources: one per process. Clients of a closed loop: --users."""
    if environment.parsed_options.arrivals != "closed":
        runner = environment.runner
        return max(1, runner.worker_count) if isinstance(runner, MasterRunner) else 1
    return environment.parsed_options.num_users or 1


def _folder(config: LoadConfig) -> Path:
    return Path(config.report_dir or f"runs/{time.strftime('%Y%m%d-%H%M%S')}")


def _reporter(environment: Any) -> Any:
    def report(record: Record) -> None:
        _count(environment, record)
        if isinstance(environment.runner, WorkerRunner):
            environment.runner.send_message(RECORD, asdict(record))
        elif state.run is not None:
            state.run.add(record)

    return report


def _count(environment: Any, record: Record) -> None:
    """Locust's own statistics: E2E for every request, TTFT and TPOT for answered ones."""
    if record.status == "aborted":
        return
    failed = RuntimeError(f"{record.error_kind}: {record.error}") if not record.ok else None
    entries = {"E2E": record.e2e, "TTFT": record.ttft, "TPOT": record.tpot}
    for kind, seconds in entries.items():
        if kind == "E2E" or (record.ok and seconds is not None):
            environment.events.request.fire(
                request_type=kind,
                name="request",
                response_time=1000 * (seconds or 0.0),
                response_length=record.completion_tokens,
                exception=failed,
                context={},
            )


def _begin_share(environment: Any, msg: Any, **_: Any) -> None:
    config = LoadConfig.model_validate(msg.data["config"])
    endpoint = Endpoint.of(config, msg.data["url"], "", api_key(config), sglang=False)
    state.node = from_message(msg.data, endpoint.headers, _reporter(environment))


def _take_record(environment: Any, msg: Any, **_: Any) -> None:
    if state.run is not None:
        state.run.add(Record.from_dict(msg.data))


def _take_idle(environment: Any, msg: Any, **_: Any) -> None:
    if state.run is not None:
        state.run.idle_clients += 1


def _observe(run: Run) -> None:
    gevent.sleep(max(0.0, -run.clock()))
    while run.status is None:
        run.look()
        gevent.sleep(run.config.metrics_interval)
