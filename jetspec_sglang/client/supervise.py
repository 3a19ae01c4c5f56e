"""`python -m jetspec_sglang.client.supervise LAUNCH`: run a server and its companions together.

Contract: LAUNCH is JSON `{server: argv, url, log, told, companions: [{name, command, page, ready,
log}]}`. `url` is the server's address, `log` the file of its own lines (null: this terminal),
`told` the facts about the launch to print at the start, by name. A companion (the controller,
Prometheus, ...) is ready when `ready`, a URL, answers 200; without it, at once. Its output goes to
the file `log`, or to this process's. `page` is printed for people when the server and every running
companion are ready. Ends when the server ends, with its exit status (128 + N when signal N ended
it). SIGTERM and SIGINT end the companions first, in order, so that a controller can still leave the
budget as it wants, then the server; a second one kills all. What a child leaves behind in its
process group is killed when it has ended. If a companion ends by itself, this is reported and the
server continues. No child outlives this process. Standard library only: it stays in memory as long
as the server. I/O: processes, signals, GET, one POST /generate, the log files.
"""

import contextlib
import ctypes
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from http.client import HTTPException
from typing import Any

TICK_S = 0.2
READY_EVERY_S = 1.0
FIRST_TOKEN_S = 10.0
LAST_LINES = 15
GRACE_S = 10.0
LATE_S = 30.0
"""How long a ready server waits for a companion. After that, the addresses are printed anyway."""
_PR_SET_PDEATHSIG = 1


def start(command: list[str], log: str | None = None) -> subprocess.Popen[bytes]:
    """A child process that a terminal's Ctrl-C does not reach. It ends when this process ends.

    Its output is added to the file `log` where one is given.
    """
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    with open(log, "ab") if log else contextlib.nullcontext() as sink:
        return subprocess.Popen(
            command, process_group=0, preexec_fn=die_with_parent, stdout=sink, stderr=sink
        )


def end(child: subprocess.Popen[bytes], number: int, grace_s: float | None) -> None:
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


def kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def is_ready(url: str, path: str = "/ready") -> bool:
    """Whether GET of `path` answers 200. Certificates of this machine's own are not checked."""
    trust = ssl._create_unverified_context() if url.startswith("https://") else None
    try:
        with urllib.request.urlopen(f"{url}{path}", timeout=1, context=trust) as answer:
            status: int = answer.status
            return status == 200
    except (OSError, HTTPException):
        return False


def budget_in_force(url: str) -> str | None:
    """The server's own report of its tree budget; None without one."""
    with contextlib.suppress(OSError, HTTPException, ValueError, LookupError, TypeError):
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
    with contextlib.suppress(OSError, HTTPException, ValueError):
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


class Companion:
    """A process beside the server."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.name, self.page = launch["name"], launch.get("page")
        self._ready_url, self._log = launch.get("ready"), launch.get("log")
        self.process = start(launch["command"], self._log)
        self.reported = False

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def is_ready(self) -> bool:
        return self._ready_url is None or is_ready(self._ready_url, "")

    def epitaph(self) -> str:
        """What to say when it ended by itself."""
        log = f" (see {self._log})" if self._log else ""
        return f"{self.name} ended with status {self.process.returncode}{log}; the server continues"


class Supervisor:
    """Server and companions as one process to whoever started it."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.url, self._late_at, self.log = launch["url"], 0.0, launch.get("log")
        told = {**launch.get("told", {}), **({"log": self.log} if self.log else {})}
        for name, value in told.items():
            self._say(f"{name + ':':<8} {value}")
        self.signals: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self.server = start(launch["server"], self.log)
        self.companions: list[Companion] = []
        for companion in launch["companions"]:
            try:
                self.companions.append(Companion(companion))
            except OSError as error:
                self._say(f"{companion['name']} cannot start: {error}; the server continues")

    def run(self) -> int:
        """Wait for the server, tell when all is ready, and clean up. Returns the exit status."""
        told, next_look = False, 0.0
        while self.server.poll() is None and not self.signals:
            self._report_ended()
            if not told and time.monotonic() >= next_look:
                next_look = time.monotonic() + READY_EVERY_S
                told = self._tell_when_ready()
            time.sleep(TICK_S)
        for companion in self.companions:
            end(companion.process, signal.SIGTERM, GRACE_S)
        end(self.server, self.signals[0] if self.signals else signal.SIGTERM, None)
        code = self.server.returncode
        status = code if code >= 0 else 128 - code
        if not self.signals:
            self._say(f"the server ended with status {status}; its log shows the reason")
            for line in last_lines(self.log) if self.log and status else ():
                print(f"  {line}", file=sys.stderr)
        return status

    def _say_first_answer(self) -> None:
        if budget := budget_in_force(self.url):
            self._say(f"{'budget:':<8} {budget}")
        if (seconds := seconds_to_first_token(self.url)) is not None:
            self._say(f"first token after {seconds:.2f} s")

    def _tell_when_ready(self) -> bool:
        """Print the addresses if all is ready, or if a companion is late; whether it did."""
        if not is_ready(self.url):
            return False
        self._late_at = self._late_at or time.monotonic() + LATE_S
        running = [companion for companion in self.companions if companion.running]
        late = [companion.name for companion in running if not companion.is_ready()]
        if late and time.monotonic() < self._late_at:
            return False
        pages = [f", {one.name} on {one.page}" for one in running if one.page]
        self._say(f"ready: API on {self.url}/v1{''.join(pages)}")
        if late:
            self._say(f"not ready yet: {', '.join(late)}")
        self._say_first_answer()
        return True

    def _report_ended(self) -> None:
        for companion in self.companions:
            if not companion.running and not companion.reported:
                companion.reported = True
                self._say(companion.epitaph())

    def _on_signal(self, number: int, _frame: object) -> None:
        if self.signals:
            for child in (self.server, *(companion.process for companion in self.companions)):
                kill_group(child)
        self.signals.append(number)

    def _say(self, text: str) -> None:
        print(f"jetspec: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(Supervisor(json.loads(sys.argv[1])).run())
