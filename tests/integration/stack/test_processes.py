"""`python -m deploy.stack` as a process: real controller-less stack with a real Prometheus.

SGLang is replaced by a program that answers /ready and /metrics: what is looked at is who starts,
who is scraped, and that all end. With SGLang the same supervisor is tested in `test_serve_command`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.integration.test_serve_command import children_of_group
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[3]
SGLANG = """
import http.server, signal, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(b"sglang:num_running_reqs 1\\n" if self.path == "/metrics" else b"")
    def log_message(self, *_): pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class Stack:
    process: subprocess.Popen[str]
    port: int
    prometheus: int
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.said()}"
            time.sleep(0.1)

    def ask(self, path: str, **query: str) -> list[dict]:
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}"
        return httpx.get(url, params=query, timeout=10).json()["data"]


Command = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed; apt-get install prometheus")
    folder = tmp_path_factory.mktemp("stack")
    (folder / "sglang").mkdir()
    (folder / "sglang" / "__init__.py").touch()
    (folder / "sglang" / "launch_server.py").write_text(SGLANG)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")

    def run(*words: str, **options: object) -> subprocess.Popen[str]:
        model = ["--model-path", str(folder / "model")]
        return subprocess.Popen(
            [sys.executable, "-m", "deploy.stack", "--plain", *model, *words],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": str(folder),
                "JETSPEC_PLATFORM": "off",
                "JETSPEC_CACHE": str(folder / "cache"),
            },
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )

    return run


@contextmanager
def started(command: Command, log: Path) -> Iterator[Stack]:
    port, prometheus, grafana = (free_port() for _ in range(3))
    words = ["--port", str(port), "--prometheus-port", str(prometheus)]
    with log.open("w") as sink:
        process = command(*words, "--grafana-port", str(grafana), stdout=sink)
    stack = Stack(process, port, prometheus, log)
    try:
        stack.until(lambda: "ready: API" in stack.said(), "ready")
        yield stack
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def shared(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One for tests that end nothing."""
    with started(command, tmp_path_factory.mktemp("shared") / "log") as stack:
        yield stack


@pytest.fixture
def stack(command: Command, tmp_path: Path) -> Iterator[Stack]:
    with started(command, tmp_path / "log") as stack:
        yield stack


def test_prometheus_scrapes_the_server_and_loads_every_rule(shared: Stack) -> None:
    assert f"Prometheus on http://127.0.0.1:{shared.prometheus}" in shared.said()

    def up() -> bool:
        found = shared.ask("query", query="up")["result"]  # type: ignore[call-overload]
        return {one["metric"]["job"] for one in found if one["value"][1] == "1"} == {
            "sglang",
            "prometheus",
        }

    shared.until(up, "both jobs up")
    groups = shared.ask("rules")["groups"]  # type: ignore[call-overload]
    assert sum(len(group["rules"]) for group in groups) > 40


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)]
)
def test_a_signal_ends_all(stack: Stack, number: int) -> None:
    stack.process.send_signal(number)
    assert stack.process.wait(30) == 0, stack.said()
    assert children_of_group(stack.process.pid) == []
    for port in (stack.port, stack.prometheus):
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}")


@pytest.mark.full
def test_the_end_of_the_server_ends_all(stack: Stack) -> None:
    [server] = [
        pid for pid in children(stack.process.pid) if "sglang.launch_server" in command_line(pid)
    ]
    os.kill(server, signal.SIGKILL)
    assert stack.process.wait(30) == 128 + signal.SIGKILL
    assert children_of_group(stack.process.pid) == []


@pytest.mark.full
def test_prometheus_that_ends_is_told_and_the_server_goes_on(stack: Stack) -> None:
    [watcher] = [
        pid for pid in children(stack.process.pid) if "--storage.tsdb" in command_line(pid)
    ]
    os.kill(watcher, signal.SIGKILL)
    stack.until(lambda: "Prometheus ended with status -9" in stack.said(), "told")
    assert httpx.get(f"http://127.0.0.1:{stack.port}/ready").status_code == 200


def test_a_second_stack_is_refused(shared: Stack, command: Command) -> None:
    words = ["--port", str(shared.port), "--prometheus-port", str(shared.prometheus)]
    second = command(*words, stdout=subprocess.PIPE)
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 1
    assert len(said.splitlines()) == 1
    assert f"cannot listen on 127.0.0.1:{shared.prometheus}" in said


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
