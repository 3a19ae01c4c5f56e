"""`python -m jetspec_sglang.cli.supervise PLAN`: run server and controller together.

Contract: PLAN is JSON `{server: argv, controller: argv, url, page, log, told}`, where `url` is the
server's address and `page` the controller's. `log` is the file that both write their own lines to,
null for this terminal; `told` maps names to what is said about the launch at its start. Ends when the server ends, with its exit status (128 + N when
signal N ended it). SIGTERM and SIGINT end the controller first, so that it can still leave the
budget as it wants, then the server; a second one kills both. What a child leaves behind in its
process group is killed when it has ended. A controller that ends by itself is reported and the
server goes on. Neither outlives this process. Standard library only: it stays in memory as long as
the server. I/O: processes, signals, the log, GET /ready and /server_info, one POST /generate.
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
FIRST_TOKEN_S = 10.0
LAST_LINES = 15
CONTROLLER_GRACE_S = 10.0
_PR_SET_PDEATHSIG = 1


def start(command: list[str], log: str | None = None) -> subprocess.Popen:
    """A child that a terminal's Ctrl-C does not reach and that ends when this process does.

    Its output is appended to the file `log`.
    """
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    with open(log, "ab") if log else contextlib.nullcontext() as sink:
        return subprocess.Popen(
            command, process_group=0, preexec_fn=die_with_parent, stdout=sink, stderr=sink
        )


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


def budget_in_force(url: str) -> str | None:
    """What the server says of its tree budget; None when it does not say it."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        with urllib.request.urlopen(f"{url}/server_info", timeout=5) as answer:
            state = json.load(answer)["internal_states"][0]["jetspec"]
        return f"{state['budget']} of at most {state['max_budget']} nodes"
    return None


def seconds_to_first_token(url: str) -> float | None:
    """How long one short request takes; None when the server does not answer it."""
    body = json.dumps({"text": "Hello", "sampling_params": {"max_new_tokens": 1}}).encode()
    request = urllib.request.Request(
        f"{url}/generate", body, {"Content-Type": "application/json"}, method="POST"
    )
    started = time.monotonic()
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(request, timeout=FIRST_TOKEN_S) as answer:
            answer.read()
        return time.monotonic() - started
    return None


def last_lines(log: str) -> list[str]:
    """The end of a log, without progress bars and empty lines."""
    try:
        with open(log, encoding="utf-8", errors="replace", newline="\n") as file:
            lines = [line.rstrip().rsplit("\r", 1)[-1][:400] for line in file]
    except OSError:
        return []
    return [line for line in lines if line][-LAST_LINES:]


class Supervisor:
    """Server and controller as one process to whoever started it."""

    def __init__(self, plan: dict) -> None:
        self.url, self.page, self.log = plan["url"], plan["page"], plan.get("log")
        told = {**plan.get("told", {}), **({"log": self.log} if self.log else {})}
        for name, value in told.items():
            self._say(f"{name + ':':<8} {value}")
        self.signals: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.server = start(plan["server"], self.log)
        self.controller = start(plan["controller"], self.log)

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
                    self._say_first_answer()
            time.sleep(TICK_S)
        end(self.controller, signal.SIGTERM, CONTROLLER_GRACE_S)
        end(self.server, self.signals[0] if self.signals else signal.SIGTERM, None)
        code = self.server.returncode
        status = code if code >= 0 else 128 - code
        if not self.signals:
            self._say(f"the server ended by itself with status {status}; its log says why")
            for line in last_lines(self.log) if self.log and status else ():
                print(f"  {line}", file=sys.stderr)
        return status

    def _say_first_answer(self) -> None:
        if budget := budget_in_force(self.url):
            self._say(f"{'budget:':<8} {budget}")
        if (seconds := seconds_to_first_token(self.url)) is not None:
            self._say(f"first token after {seconds:.2f} s")

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.signals:
            for child in (self.controller, self.server):
                kill_group(child)
        self.signals.append(number)

    def _say(self, text: str) -> None:
        print(f"jetspec: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(Supervisor(json.loads(sys.argv[1])).run())
