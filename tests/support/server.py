"""`Server`: a real SGLang server in a subprocess, started, waited for and stopped for certain.

Contract: `Server.start` returns when the server answers, or raises `ServerFailedError` with the
tail of its log. `stop` leaves no process behind; nor does the death of the tests' process.
I/O: one log file, one port of the loopback interface.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.support.ports import free_port

READY_SECONDS = 900.0
REQUEST_SECONDS = 1500.0
LOG_TAIL = 40

GUARD = "import os, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), 9)"
"""Waits until the tests' end of its pipe closes, however they ended, and kills the group."""

_guards: dict[int, subprocess.Popen[bytes]] = {}


class ServerFailedError(RuntimeError):
    """The server did not become ready; the message ends with its log."""


class Server:
    """A running server and the requests tests send it."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log
        self.client = httpx.Client(
            base_url=url,
            timeout=REQUEST_SECONDS,
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=0),
            trust_env=False,
        )

    @classmethod
    def start(
        cls,
        arguments: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        seconds: float = READY_SECONDS,
    ) -> Server:
        """Launch `sglang.launch_server` with `arguments` (port left out) and wait for it."""
        port = free_port()
        process = launch([*arguments, "--port", str(port)], log, environment)
        server = cls(process, f"http://127.0.0.1:{port}", log)
        try:
            server._wait(time.monotonic() + seconds)
        except BaseException:
            server.stop()
            raise
        return server

    def _wait(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if (code := self.process.poll()) is not None:
                raise ServerFailedError(f"the server ended with {code}:\n{tail(self.log)}")
            try:
                if self.client.get("/health", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.5)
        raise ServerFailedError(f"the server was not ready in time:\n{tail(self.log)}")

    def stop(self) -> None:
        """End the server and every process it started."""
        self.client.close()
        end(self.process)

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    # -- requests -----------------------------------------------------------------------

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """The JSON answer; an HTTP error is an AssertionError with the server's words."""
        answer = self.client.post(path, json=body, **options)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return answer.json()

    def generate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One `/generate` call."""
        return self.post("/generate", dict(request))

    def generate_all(
        self, requests: Iterable[Mapping[str, Any]], concurrency: int
    ) -> list[dict[str, Any]]:
        """`/generate` for each request, `concurrency` of them in flight; answers in order."""
        with ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(self.generate, requests))

    def jetspec(self) -> dict[str, Any]:
        """The engine's part of `/server_info`."""
        return self.get("/server_info")["internal_states"][0]["jetspec"]

    def set_state(self, values: Mapping[str, Any]) -> bool:
        """`/set_internal_state`; whether the change was accepted."""
        answer = self.post("/set_internal_state", {"server_args": dict(values)})
        assert isinstance(answer, list), answer
        assert len(answer) == 1, answer
        return answer[0]

    def set_budget(self, budget: int) -> None:
        assert self.set_state({"jetspec_tree_budget": budget})

    def flush(self) -> None:
        """Empty the prefix cache; waits until nothing runs."""
        answer = self.client.post("/flush_cache", params={"timeout": 30})
        assert answer.status_code == 200, answer.text

    def used_tokens(self) -> int:
        """KV slots held by requests and by the prefix cache."""
        load = self.get("/v1/loads")["loads"][0]
        return int(load["num_used_tokens"])

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The Prometheus series as {(name, labels): value}."""
        text = self.client.get("/metrics", follow_redirects=True).text
        return parse_metrics(text)


def parse_metrics(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(
    series: Mapping[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str
) -> float:
    """Sum of every series of a name whose labels include the given ones."""
    wanted = set(labels.items())
    return sum(value for (found, have), value in series.items() if found == name and wanted <= have)


def launch(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `sglang.launch_server`; stdout and stderr go to `log`. End it with `end`."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *arguments],
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    _guards[process.pid] = subprocess.Popen(
        [sys.executable, "-S", "-c", GUARD, str(process.pid)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the leader of a process group with all that it started, and its guard if it has one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
    guard = _guards.pop(process.pid, None)
    if guard is not None:
        guard.kill()
        guard.communicate()


def tail(log: Path, lines: int = LOG_TAIL) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()[-lines:])
