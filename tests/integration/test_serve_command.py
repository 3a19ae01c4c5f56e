"""`jetspec serve` as an operator starts it: server and controller, used and stopped.

The server is shared by the run (`served`); how it ends on SIGTERM is checked when its last test is
done.
"""

from __future__ import annotations

import re
import subprocess
import time

import httpx
import pytest

from tests.support.served import Served, command

pytestmark = pytest.mark.integration


def test_both_addresses_are_printed(served: Served) -> None:
    said = served.log.read_text(errors="replace")
    assert f"ready: API on {served.url}/v1, controller on {served.controller}" in said


def test_generate_and_budget(served: Served) -> None:
    said = subprocess.run(
        command(
            "generate", "What is 2 + 2?", "--url", served.url, "--max-tokens", "8", "--budget", "4"
        ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip()
    assert re.search(r"tokens, first after .*, τ \d\.\d\d over \d+ rounds", said.stderr)
    refused = subprocess.run(
        command("budget", "set", served.url, "65"), capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 1
    assert "from 1 to 64" in refused.stderr
    shown = subprocess.run(command("budget", "get", served.url), capture_output=True, text=True)
    assert re.match(r"budget \d+.* at most 64, tiers 1,2,4,8,16,32,64, width 8", shown.stdout)


def test_model_has_a_name(served: Served) -> None:
    assert httpx.get(f"{served.url}/v1/models").json()["data"][0]["id"] == "SmolLM2-135M-Instruct"


def test_controller_sees_the_server(served: Served) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        targets = httpx.get(f"{served.controller}/v1/targets", timeout=10).text
        if served.url.removeprefix("http://") in targets:
            return
        time.sleep(1)
    raise AssertionError(targets)


def test_second_server_on_the_port_is_refused(served: Served) -> None:
    port = served.url.rpartition(":")[2]
    again = subprocess.run(
        command("serve", "--plain", "--port", port), capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in again.stderr
    assert len(again.stderr.splitlines()) == 1
