"""The supervisor with small Python children: readiness, ends, signals, and no orphans."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jetspec_sglang.client.supervise import (
    Companion,
    Supervisor,
    budget_in_force,
    end,
    is_ready,
    seconds_to_first_token,
)

# Writes its pid, then each signal it gets, into FILE; ends with STATUS on SIGTERM or SIGINT.
CHILD = """
import signal, sys, time
file, seconds, status = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
def note(text):
    with open(file, "a") as log: log.write(f"{text} {time.monotonic()}\\n")
def stop(number, frame):
    note(signal.Signals(number).name); sys.exit(status)
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, stop)
import os; note(os.getpid())
time.sleep(seconds); sys.exit(status)
"""
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
open(sys.argv[1], "w").write(f"{os.getpid()} 0\\n")
time.sleep(60)
"""


# Ends on SIGTERM and leaves a process behind that does not.
LEAVING = """
import signal, subprocess, sys, time
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
left = subprocess.Popen([sys.executable, "-c", ignore], stdout=subprocess.PIPE)
left.stdout.readline()
open(sys.argv[1], "w").write(f"{left.pid} 0\\n")
time.sleep(60)
"""

# The supervisor at a pace for tests.
RUN = """
import json, sys
from jetspec_sglang.client import supervise
supervise.TICK_S, supervise.READY_EVERY_S = 0.02, 0.05
sys.exit(supervise.Supervisor(json.loads(sys.argv[1])).run())
"""


@pytest.fixture
def supervise(tmp_path):
    """Starts a supervisor; `code`/`seconds`/`status` of server and controller can be chosen."""
    started = []

    def command(name, code, seconds, status):
        return [sys.executable, "-c", code, str(tmp_path / name), str(seconds), str(status)]

    def start(
        *,
        server=(CHILD, 60, 0),
        controller=(CHILD, 60, 0),
        url="http://127.0.0.1:1",
        launch=None,
        **more,
    ):
        companion = {"name": "controller", "command": command("controller", *controller)}
        companion |= {"page": "http://127.0.0.1:2", **more}
        plan = {"url": url, "server": command("server", *server), "companions": [companion]}
        plan |= launch or {}
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, json.dumps(plan)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def lines(tmp_path, name, count):
    """The first `count` notes of a child, waiting for them."""
    file = tmp_path / name
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        found = file.read_text().splitlines() if file.exists() else []
        if len(found) >= count:
            return [line.split() for line in found[:count]]
        time.sleep(0.01)
    raise AssertionError(f"{name} wrote {found}, wanted {count} lines")


def shown_until(process, words):
    """What the supervisor prints, up to the line with these words; pytest limits the wait."""
    shown = ""
    for line in process.stderr:
        shown += line
        if words in line:
            return shown
    raise AssertionError(f"the supervisor ended without {words!r}: {shown}")


def ended(process):
    """Ask the supervisor to end; the rest of what it prints."""
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    assert process.wait(10) == 0
    return rest


def alive(pid):
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def gone(pid):
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_controller_first(supervise, tmp_path, number):
    process = supervise(server=(CHILD, 60, 7))
    lines(tmp_path, "server", 1)
    lines(tmp_path, "controller", 1)
    process.send_signal(number)
    assert process.wait(10) == 7
    controller_end, server_end = (
        lines(tmp_path, "controller", 2)[1],
        lines(tmp_path, "server", 2)[1],
    )
    assert controller_end[0] == "SIGTERM"
    assert server_end[0] == number.name
    assert float(controller_end[1]) < float(server_end[1])


def test_server_that_ends_takes_the_controller_with_it(supervise, tmp_path):
    process = supervise(server=(CHILD, 60, 3))
    server, controller = (int(lines(tmp_path, n, 1)[0][0]) for n in ("server", "controller"))
    os.kill(server, signal.SIGTERM)
    assert process.wait(10) == 3
    assert gone(controller)


def test_server_killed_by_a_signal(supervise, tmp_path):
    process = supervise()
    os.kill(int(lines(tmp_path, "server", 1)[0][0]), signal.SIGKILL)
    assert process.wait(10) == 128 + signal.SIGKILL
    assert "the server ended with status 137" in process.stderr.read()


def test_controller_that_ends_is_reported_and_the_server_goes_on(supervise, tmp_path):
    process = supervise(controller=(CHILD, 0.1, 5))
    lines(tmp_path, "server", 1)
    error = shown_until(process, "controller ended with status 5; the server continues")
    time.sleep(0.2)  # many looks at the companion that has ended
    assert process.poll() is None
    error += ended(process)
    assert error.count("controller ended with status 5") == 1


def test_companion_that_cannot_start_is_reported_and_the_server_goes_on(supervise, tmp_path):
    process = supervise(log="/dev/null/no-such-folder/log")
    shown_until(process, "controller cannot start:")
    lines(tmp_path, "server", 1)
    ended(process)


def test_second_signal_kills(supervise, tmp_path):
    process = supervise(server=(STUBBORN, 0, 0), controller=(STUBBORN, 0, 0))
    pids = [lines(tmp_path, name, 1)[0][0] for name in ("server", "controller")]
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGKILL
    assert all(gone(pid) for pid in pids)


def test_children_do_not_outlive_a_killed_supervisor(supervise, tmp_path):
    process = supervise()
    pids = [lines(tmp_path, name, 1)[0][0] for name in ("server", "controller")]
    process.kill()
    process.wait()
    assert all(gone(pid) for pid in pids)


def test_addresses_are_printed_when_the_server_is_ready(supervise, server, tmp_path):
    process = supervise(url=server.url)
    lines(tmp_path, "server", 1)
    error = shown_until(process, "first token after")
    time.sleep(0.2)  # many looks at the server that is ready
    error += ended(process)
    assert f"ready: API on {server.url}/v1, controller on http://127.0.0.1:2" in error
    assert error.count("ready:") == 1


def test_addresses_wait_for_the_companion(supervise, tmp_path):
    """The server is ready at each of several looks, the companion at none."""
    asked = []

    def serve(listener):
        while asked.count(b"/companion") < 4:
            connection, _ = listener.accept()
            with connection:
                asked.append(path := connection.recv(4096).split()[1])
                status = b"404 Not Found" if path == b"/companion" else b"200 OK"
                connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = supervise(url=url, ready=f"{url}/companion")
        lines(tmp_path, "server", 1)
        thread.join(30)
        assert asked.count(b"/companion") == 4
        assert asked.count(b"/ready") >= 4
    assert "ready: API" not in ended(process)


@pytest.mark.parametrize(
    "answer", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"]
)
def test_a_server_cut_off_in_its_answer_is_not_an_error_of_ours(answer):
    """A server that is killed while it answers: its exit status is what must be told."""

    def serve(listener):
        for _ in range(3):
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        is_ready(url)
        assert budget_in_force(url) is None
        assert seconds_to_first_token(url) is None
        thread.join(10)


def test_a_late_companion_is_named(server, capsys):
    supervisor = Supervisor.__new__(Supervisor)
    supervisor.url, supervisor._late_at = server.url, time.monotonic() - 1
    late = {"name": "Prometheus", "command": ["sleep", "9"], "ready": f"{server.url}/none"}
    supervisor.companions = [Companion(late)]
    assert supervisor._tell_when_ready()
    end(supervisor.companions[0].process, signal.SIGTERM, 5)
    assert "not ready yet: Prometheus" in capsys.readouterr().err


def test_a_companion_with_a_log_writes_there_and_nowhere_else(supervise, server, tmp_path):
    log = tmp_path / "log"
    loud = ("print('loud'); raise SystemExit(3)", 0, 0)
    process = supervise(controller=loud, log=str(log))
    lines(tmp_path, "server", 1)
    error = shown_until(process, "controller ended with status 3")
    error += ended(process)
    assert log.read_text() == "loud\n"
    assert "loud" not in error
    assert f"controller ended with status 3 (see {log})" in error


NOISY = """
import sys, time
print("server_args=" + 12000 * "x"); print("Loading:  10%\\rLoading: 100%")
print("ValueError: no such model", file=sys.stderr)
sys.exit(int(sys.argv[3]))
"""


def test_what_matters_is_shown_and_the_rest_is_in_a_named_log(supervise, tmp_path):
    log = tmp_path / "server.log"
    process = supervise(
        server=(NOISY, 0, 0), launch={"log": str(log), "told": {"model": "M", "head": "H"}}
    )
    assert process.wait(10) == 0
    shown = process.stderr.read()
    for words in ("jetspec: model:   M", "jetspec: head:    H", f"jetspec: log:     {log}"):
        assert words in shown
    assert "server_args" not in shown
    assert max(map(len, shown.splitlines())) < 200
    assert "server_args=xxx" in log.read_text()


def test_a_server_that_fails_says_why_from_its_log(supervise, tmp_path):
    process = supervise(server=(NOISY, 0, 1), launch={"log": str(tmp_path / "server.log")})
    assert process.wait(10) == 1
    shown = process.stderr.read()
    assert "ValueError: no such model" in shown
    assert "10%" not in shown


def test_budget_and_first_token_are_shown_when_the_server_is_ready(supervise, tmp_path, server):
    process = supervise(url=server.url)
    lines(tmp_path, "server", 1)
    shown = shown_until(process, "first token after")
    ended(process)
    assert "budget:  64 of at most 256 nodes" in shown
    assert re.search(r"first token after \d+\.\d\d s", shown)


@pytest.mark.parametrize("name", ["server", "controller"])
def test_what_a_child_leaves_behind_ends_too(supervise, tmp_path, name):
    process = supervise(**{name: (LEAVING, 60, 0)})
    [[left, _]] = lines(tmp_path, name, 1)
    process.send_signal(signal.SIGTERM)
    process.wait(10)
    assert gone(left)
