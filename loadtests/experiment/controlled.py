"""The budget controller beside a server, and a Prometheus for it, as child processes.

Contract: both end with their block. I/O: processes, files in a folder of the caller, HTTP.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.supervise import end, is_ready, start

READY_TIMEOUT_S = 60.0
SCRAPE_S = 1


class Child:
    """A program with a log that can be stopped and started again."""

    def __init__(self, command: Sequence[str], log: Path, url: str, ready: str, name: str) -> None:
        """`ready`: the path under `url` that answers 200 when the program is ready."""
        self._command, self._log, self._name = list(command), log, name
        self._url, self._path = url, ready
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Child:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it is ready."""
        self.process = start(self._command, str(self._log))
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not is_ready(self._url, self._path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                lines = self._log.read_text(errors="replace").strip().splitlines()
                raise CommandError(
                    f"{self._name} does not start: {''.join(lines[-1:])} ({self._log})"
                )
            time.sleep(0.2)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            end(self.process, number, 15.0)
            self.process = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None


def controller(
    target: str, port: int, folder: Path, *, prometheus: str = "", policy: Sequence[str] = ()
) -> Child:
    """The controller for one server; its state starts empty when `folder` is new."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = folder / "token"
    with os.fdopen(os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"load {secrets.token_urlsafe(32)}\n")
    config = folder / "controller.json"
    content: dict[str, Any] = {
        "targets": [{"url": target, "id": "server"}],
        "state": {"path": str(folder / "state.sqlite")},
        "audit": {"path": str(folder / "audit.jsonl")},
        "policy": dict(one.split("=", 1) for one in policy),
    }
    if prometheus:
        content["prometheus"] = {"url": prometheus}
        content["targets"][0]["instance"] = target.removeprefix("http://")
    config.write_text(json.dumps(content, indent=1))
    command = [
        *(str(Path(sys.executable).with_name("jetspec-controller")), "--log-level", "warning"),
        *("run", "--config", str(config), "--port", str(port), "--token-file", str(tokens)),
    ]
    return Child(
        command, folder / "controller.log", f"http://127.0.0.1:{port}", "/livez", "controller"
    )


def prometheus(program: str, target: str, port: int, folder: Path) -> Child:
    """A Prometheus that scrapes the server every second."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "prometheus.json"
    scrape = {
        "job_name": "sglang",
        "static_configs": [{"targets": [target.removeprefix("http://")]}],
    }
    interval = {"scrape_interval": f"{SCRAPE_S}s"}
    config.write_text(json.dumps({"global": interval, "scrape_configs": [scrape]}))
    command = [
        *("env", "GOMAXPROCS=1", program, f"--config.file={config}"),
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    return Child(
        command, folder / "prometheus.log", f"http://127.0.0.1:{port}", "/-/ready", "prometheus"
    )


def pin(port: int, folder: Path, budget: int | None, ttl_s: float) -> None:
    """Pin the server's budget through the controller's API, or unpin it. CommandError.

    `folder`: the controller's, which holds its token.
    """
    token = (folder / "token").read_text().split()[1]
    url = f"http://127.0.0.1:{port}/v1/targets/server/pin"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = None
    if budget is not None:
        body = json.dumps({"budget": budget, "ttl_s": ttl_s, "reason": "soak"}).encode()
    request = urllib.request.Request(
        url, body, headers, method="DELETE" if budget is None else "PUT"
    )
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except OSError as error:
        raise CommandError(f"{url}: {error}") from None
