"""`python -m jetspec_sglang.cli.supervise PLAN`: run server and controller together.

Contract: PLAN is JSON `{server: argv, controller: argv, url, page}`, where `url` is the server's
address and `page` the controller's. Ends when the server ends, with its exit status (128 + N when
signal N ended it). SIGTERM and SIGINT end the controller first, so that it can still leave the
budget as it wants, then the server; a second one kills both. What a child leaves behind in its
process group is killed when it has ended. A controller that ends by itself is reported and the
server goes on. Neither outlives this process. Standard library only: it stays in memory as long as
the server. I/O: processes, signals, GET /ready.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

TICK_S = 0.2
READY_EVERY_S = 1.0
CONTROLLER_GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1


def start(command: list[str]) -> subprocess.Popen:
    """A child that a terminal's Ctrl-C does not reach and that ends when this process does."""
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return subprocess.Popen(command, process_group=0, preexec_fn=die_with_parent)


def end(child: subprocess.Popen, number: int, grace_s: float | None) -> None:
    """Send the signal and wait; SIGKILL its whole process group after `grace_s` (None: never)."""
    if child.poll() is None:
        child.send_signal(number)
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        kill_group(child)
        child.wait()
    # SGLang's children do not yet end with their parent while they load.
    kill_group(child)


def kill_group(child: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def is_ready(url: str) -> bool:
    """Whether the server answers GET /ready with 200."""
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


class Supervisor:
    """Server and controller as one process to whoever started it."""

    def __init__(self, plan: dict) -> None:
        self.url, self.page = plan["url"], plan["page"]
        self.signals: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.server = start(plan["server"])
        self.controller = start(plan["controller"])

    def run(self) -> int:
        """Wait for the server, tell when it is ready, and clean up. Returns the exit status."""
        ready, controlled, next_look = False, True, 0.0
        while self.server.poll() is None and not self.signals:
            if controlled and self.controller.poll() is not None:
                controlled = False
                self._say(
                    f"the controller ended with status {self.controller.returncode}; "
                    "the server goes on with its last budget"
                )
            if not ready and time.monotonic() >= next_look:
                next_look = time.monotonic() + READY_EVERY_S
                ready = is_ready(self.url)
                if ready:
                    page = f", controller on {self.page}" if controlled else ""
                    self._say(f"ready: API on {self.url}/v1{page}")
            time.sleep(TICK_S)
        end(self.controller, signal.SIGTERM, CONTROLLER_GRACE_S)
        end(self.server, self.signals[0] if self.signals else signal.SIGTERM, None)
        code = self.server.returncode
        status = code if code >= 0 else 128 - code
        if not self.signals:
            self._say(f"the server ended by itself with status {status}; its log says why")
        return status

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.signals:
            for child in (self.controller, self.server):
                kill_group(child)
        self.signals.append(number)

    def _say(self, text: str) -> None:
        print(f"jetspec: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(Supervisor(json.loads(sys.argv[1])).run())
