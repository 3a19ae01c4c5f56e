"""Servers for measurements: `jetspec serve` as child processes, one or several at a time.

I/O: processes, logs in a folder of the caller, HTTP to the servers. Every server of a comparison
gets the same flags; only dtype, speculation and the tree rule differ.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.load import flush_cache
from jetspec_sglang.client.server import Server
from jetspec_sglang.client.supervise import end, is_ready, start
from jetspec_sglang.settings import ENVIRONMENT_VARIABLE

START_TIMEOUT_S = 900.0
END_GRACE_S = 30.0
SAME_FOR_ALL = ("--min-free-slots-delay", "1")
"""SGLang delays prefills for the DFLASH family, but not for plain decoding."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One server: `rule` is the tree rule, None for plain decoding."""

    dtype: str
    rule: str | None

    @property
    def name(self) -> str:
        kind = {None: "plain", "chain": "chain"}.get(self.rule, "tree")
        return f"{kind}-{self.dtype}"


class Fleet:
    """Starts servers when they are asked for; with `together` they stay up, else one at a time."""

    def __init__(
        self, flags: Sequence[str], port: int, logs: Path, *, together: bool = False
    ) -> None:
        """`flags`: SGLang's own, for every server. Ports are taken from `port` on."""
        self._flags, self._port, self._logs, self._together = flags, port, logs, together
        self._children: dict[Launch, tuple[subprocess.Popen[bytes], Server]] = {}

    def get(self, launch: Launch) -> tuple[Server, bool]:
        """The running server of `launch`, and whether it was started just now."""
        if launch in self._children:
            return self._children[launch][1], False
        if not self._together:
            self.stop()
        port = self._port + len(self._children)
        log = self._logs / f"{launch.name}.log"
        child = start(self._command(launch, port, log))
        server = Server(f"http://127.0.0.1:{port}")
        self._children[launch] = child, server
        _wait_until_ready(child, server, log)
        flush_cache(server)
        return server, True

    def pid(self, launch: Launch) -> int:
        """The process of a running server, the parent of all of its others."""
        return self._children[launch][0].pid

    def stop(self) -> None:
        """End every server."""
        for child, _ in self._children.values():
            end(child, signal.SIGTERM, END_GRACE_S)
        self._children.clear()

    def _command(self, launch: Launch, port: int, log: Path) -> list[str]:
        jetspec = str(Path(sys.executable).with_name("jetspec"))
        settings = json.loads(os.environ.get(ENVIRONMENT_VARIABLE, "").strip() or "{}")
        if launch.rule is not None:
            settings["rule"] = launch.rule
        return [
            # The log lies in $0, so that every argument reaches the server as it is.
            *("sh", "-c", 'exec env "$@" >"$0" 2>&1', str(log)),
            f"{ENVIRONMENT_VARIABLE}={json.dumps(settings)}",
            *(jetspec, "serve", "--plain" if launch.rule is None else "--no-controller"),
            *("--port", str(port), "--dtype", launch.dtype),
            *SAME_FOR_ALL,
            *self._flags,
        ]


@contextmanager
def fleet(
    flags: Sequence[str], port: int, logs: Path, *, together: bool = False
) -> Iterator[Fleet]:
    """A Fleet whose servers end with the block."""
    logs.mkdir(parents=True, exist_ok=True)
    servers = Fleet(flags, port, logs, together=together)
    try:
        yield servers
    finally:
        servers.stop()


def _wait_until_ready(child: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_ready(server.url):
        if child.poll() is not None:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise CommandError(f"the server stopped during start-up: {''.join(last)} (see {log})")
        if time.monotonic() > deadline:
            raise CommandError(f"the server is not ready after {START_TIMEOUT_S:.0f} s, see {log}")
        time.sleep(0.5)
