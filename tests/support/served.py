"""`serving(folder)`: `jetspec serve` as an operator starts it, the embedded model as it ships.

Its controller ticks every second, and one of its lists of targets cannot be read. The KV pool is
small. I/O: processes, ports of the loopback interface, one log file; the controller's own files in
the cache folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from jetspec_sglang.cache import cache_dir
from tests.support.ports import free_port
from tests.support.server import READY_SECONDS, end, tail

PROGRAM = "from jetspec_sglang.cli import main; raise SystemExit(main())"
POOL = "1800"
"""Slots: too few for sixteen long requests at B=64, so that some are retracted."""


@dataclass(frozen=True, slots=True)
class Served:
    """The process and the addresses of the API and of the controller."""

    process: subprocess.Popen[bytes]
    url: str
    controller: str
    log: Path

    @property
    def token(self) -> dict[str, str]:
        """Header of the controller's administrator."""
        secret = (cache_dir() / "controller" / "token").read_text().strip()
        return {"Authorization": f"Bearer {secret}"}

    def assert_sigterm_ends_all_of_it(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, tail(self.log)
        for address in (f"{self.url}/ready", f"{self.controller}/livez"):
            with pytest.raises(httpx.ConnectError):
                httpx.get(address)
        assert children_of_group(self.process.pid) == []


def command(*words: str) -> list[str]:
    """`jetspec WORDS` with this interpreter."""
    return [sys.executable, "-c", PROGRAM, *words]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    """Ready when both addresses are printed; killed at the end if it still runs."""
    port, controller_port = str(free_port()), str(free_port())
    log = folder / "log"
    environment = {name: value for name, value in os.environ.items() if name != "JETSPEC_HEAD"}
    environment |= {
        "JETSPEC_PLATFORM": "host",
        "OMP_NUM_THREADS": "1",
        "JETSPEC_CONTROLLER_POLICY__INTERVAL_S": "1",
        "JETSPEC_CONTROLLER_DISCOVERY__FILE__PATH": str(folder / "no-such-list.json"),
    }
    flags = ["--port", port, "--controller-port", controller_port, "--max-total-tokens", POOL]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command("serve", *flags),
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while "ready: API" not in log.read_text(errors="replace"):
            assert process.poll() is None, tail(log)
            assert time.monotonic() < deadline, tail(log)
            time.sleep(0.5)
        addresses = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{controller_port}"
        yield Served(process, *addresses, log)
    finally:
        end(process)


def children_of_group(session: int) -> list[str]:
    """Command lines of processes that still belong to a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((stat.parent / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
