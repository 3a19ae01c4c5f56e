"""`jetspec serve` as an operator starts it: server and controller, used and stopped.

One server for all tests; how it ends on SIGTERM is checked when the last of them is done.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.heads import head_config, write_head
from tests.support.ports import free_port
from tests.support.server import READY_SECONDS, end, tail

pytestmark = pytest.mark.integration

PROGRAM = "from jetspec_sglang.cli import main; raise SystemExit(main())"


def command(*words):
    return [sys.executable, "-c", PROGRAM, *words]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(process, API's URL, controller's URL, log) of a serving `jetspec serve`."""
    folder = tmp_path_factory.mktemp("serve")
    head = write_head(folder / "head", head_config(causal=True))
    port, controller_port = str(free_port()), str(free_port())
    log = folder / "log"
    environment = {**os.environ, "JETSPEC_HEAD": str(head), "JETSPEC_PLATFORM": "host"}
    environment["OMP_NUM_THREADS"] = "1"
    flags = ["--port", port, "--controller-port", controller_port, "--max-total-tokens", "2048"]
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
            time.sleep(1)
        addresses = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{controller_port}"
        yield process, *addresses, log
        assert_sigterm_ends_all_of_it(process, *addresses, log)
    finally:
        end(process)


def test_both_addresses_are_printed(served):
    _, url, page, log = served
    assert f"ready: API on {url}/v1, controller on {page}" in log.read_text(errors="replace")


def test_generate_and_budget(served):
    _, url, _, _ = served
    said = subprocess.run(
        command("generate", "What is 2 + 2?", "--url", url, "--max-tokens", "8", "--budget", "4"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip()
    assert re.search(r"tokens, first after .*, τ \d\.\d\d over \d+ rounds", said.stderr)
    refused = subprocess.run(
        command("budget", "set", url, "65"), capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 1
    assert "from 1 to 64" in refused.stderr
    shown = subprocess.run(command("budget", "get", url), capture_output=True, text=True)
    assert re.match(r"budget \d+.* at most 64, tiers 1,2,4,8,16,32,64, width 8", shown.stdout)


def test_model_has_a_name(served):
    _, url, _, _ = served
    assert httpx.get(f"{url}/v1/models").json()["data"][0]["id"] == "SmolLM2-135M-Instruct"


def test_controller_sees_the_server(served):
    _, url, page, _ = served
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        targets = httpx.get(f"{page}/v1/targets", timeout=10).text
        if url.removeprefix("http://") in targets:
            return
        time.sleep(1)
    raise AssertionError(targets)


def test_second_server_on_the_port_is_refused(served):
    _, url, _, _ = served
    port = url.rpartition(":")[2]
    again = subprocess.run(
        command("serve", "--plain", "--port", port), capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in again.stderr
    assert len(again.stderr.splitlines()) == 1


def assert_sigterm_ends_all_of_it(process, url, page, log):
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, tail(log)
    for address in (f"{url}/ready", f"{page}/livez"):
        with pytest.raises(httpx.ConnectError):
            httpx.get(address)
    assert children_of_group(process.pid) == []


def children_of_group(session: int) -> list[str]:
    """Command lines of processes that still belong to the session `jetspec serve` led."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((stat.parent / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
