"""`jetspec-controller run` as a process, and what it writes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

TOKEN = {"Authorization": "Bearer 0123456789abcdef"}


class Controller:
    """One run. Its configuration has the audit log at `folder`/audit.jsonl."""

    def __init__(self, folder: Path, config: Path, *flags: str) -> None:
        tokens = folder / "tokens"
        tokens.write_text("ops 0123456789abcdef\n")
        self.log = folder / "log"
        self.audit = folder / "audit.jsonl"
        command = [sys.executable, "-m", "jetspec_controller.cli", "run"]
        options = ["--config", str(config), "--port", "0", "--token-file", str(tokens)]
        with self.log.open("ab") as log:
            self.start_of_log = log.tell()
            self.process = subprocess.Popen(
                [*command, *options, *flags],
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self.url = ""

    def said(self) -> str:
        return self.log.read_bytes()[self.start_of_log :].decode()

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
        for _ in range(int(seconds / 0.1)):
            if self.process.poll() is not None:
                break
            if condition():
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"{what}: {self.said()}")

    async def started(self) -> None:
        await self.until(lambda: "serving on " in self.said(), "started")
        self.url = self.said().split("serving on ")[1].split()[0]

    async def end(self, number: int) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 20)

    def events(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.audit.read_text().splitlines()]


@asynccontextmanager
async def controller(folder: Path, config: Path) -> AsyncIterator[Controller]:
    """One that serves, killed at the end if it still runs."""
    run = Controller(folder, config)
    try:
        await run.started()
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
