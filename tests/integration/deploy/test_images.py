"""The controller's and the router's image, built from their Dockerfiles and run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.buildah import Buildah, missing
from tests.support.server import free_port

pytestmark = [
    pytest.mark.full,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

ROOT = Path(__file__).parents[3]
STATE = "/var/lib/jetspec-controller/state.sqlite"
TOKEN = "a-token-of-the-test"
LARGEST_MIB = 320
"""What the controller adds to its base."""


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    made = Buildah(tmp_path_factory.mktemp("buildah"))
    try:
        made.make_base()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def image(buildah: Buildah) -> str:
    buildah.build(ROOT / "deploy/docker/controller.Dockerfile", ROOT, "localhost/controller:test")
    return "localhost/controller:test"


def said(buildah: Buildah, container: str, *command: str) -> str:
    result = subprocess.run(
        buildah.run(container, command), capture_output=True, text=True, timeout=60
    )
    return result.stdout + result.stderr


@contextmanager
def started(
    buildah: Buildah, container: str, image: str, log: Path, *options: str
) -> Iterator[subprocess.Popen]:
    """The image's own entrypoint and command."""
    config = buildah.configuration(image)
    command = [*config["Entrypoint"], *(config.get("Cmd") or [])]
    with log.open("w") as out:
        process = subprocess.Popen(
            buildah.run(container, command, *options),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answer(url: str, log: Path, process: subprocess.Popen) -> httpx.Response:
    for _ in range(300):
        assert process.poll() is None, log.read_text()
        try:
            return httpx.get(url, trust_env=False)
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_image_holds_the_controller_and_no_more(buildah: Buildah, image: str) -> None:
    config = buildah.configuration(image)
    assert config["User"] == "10001:10001"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    container = buildah("from", image)
    assert said(buildah, container, "jetspec-controller", "--version").strip() == "0.1.0"
    assert "uid=10001(jetspec)" in said(buildah, container, "id")
    assert "No module named 'sglang'" in said(buildah, container, "python3", "-c", "import sglang")
    assert "36." in said(
        buildah, container, "python3", "-c", "import kubernetes as k; print(k.__version__)"
    )
    for program in ("pip", "gcc", "cc", "g++"):
        assert not said(buildah, container, "sh", "-c", f"command -v {program}; true").strip()
    assert "Permission denied" in said(buildah, container, "touch", "/opt/jetspec/x")
    used = said(buildah, container, "du", "-sm", "/opt/jetspec").split()[0]
    print(f"the controller's environment takes {used} MiB")
    assert int(used) < LARGEST_MIB
    files = said(buildah, container, "sh", "-c", "ls /etc/pip.conf /run/secrets /src /wheels")
    assert "/etc/pip.conf\n" not in files.replace("cannot access '", "")
    assert files.count("No such file") >= 3
    buildah("rm", container)


def test_container_serves_stops_and_remembers(buildah: Buildah, image: str, tmp_path: Path) -> None:
    port = free_port()
    folder = tmp_path / "etc"
    folder.mkdir()
    tmp_path.chmod(0o755)
    (folder / "tokens").write_text(f"ops {TOKEN}\n")
    config = {
        "targets": [f"http://127.0.0.1:{free_port()}"],
        "api": {"port": port, "token_file": "/etc/jetspec/tokens"},
        "policy": {"interval_s": 1},
    }
    (folder / "controller.yaml").write_text(json.dumps(config))
    volume = ("--volume", f"{folder}:/etc/jetspec:ro")
    url = f"http://127.0.0.1:{port}"
    container = buildah("from", image)
    log = tmp_path / "log"
    with started(buildah, container, image, log, *volume) as process:
        assert answer(f"{url}/livez", log, process).status_code == 200
        assert httpx.get(f"{url}/readyz").status_code == 503, "no server is there"
        assert httpx.post(f"{url}/v1/pause").status_code == 401
        header = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.post(f"{url}/v1/pause", headers=header).status_code == 200
        owner = said(buildah, container, "stat", "-c", "%u", STATE).strip()
        assert owner == "10001"
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    with started(buildah, container, image, log, *volume) as process:
        answer(f"{url}/livez", log, process)
        assert "jetspec_controller_paused 1.0" in httpx.get(f"{url}/metrics").text
    buildah("rm", container)


def test_health_check_of_the_image(buildah: Buildah, image: str) -> None:
    container = buildah("from", image)
    check = buildah.configuration(image)["Healthcheck"]["Test"][1:]
    assert "Connection refused" in said(buildah, container, *check)
    buildah("rm", container)


def test_router_image(buildah: Buildah, tmp_path: Path) -> None:
    tag = "localhost/router:test"
    buildah.build(ROOT / "deploy/docker/router.Dockerfile", ROOT, tag)
    container = buildah("from", tag)
    key, port = tmp_path / "key", free_port()
    key.write_text("a-key\n")
    tmp_path.chmod(0o755)
    flags = ["--host=127.0.0.1", f"--port={port}", f"--prometheus-port={free_port()}"]
    command = [*buildah.configuration(tag)["Entrypoint"], *flags]
    options = ("--volume", f"{key}:/key:ro", "--env", "JETSPEC_API_KEY_FILE=/key")
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            buildah.run(container, command, *options),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        assert answer(f"http://127.0.0.1:{port}/liveness", log, process).status_code == 200
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    buildah("rm", container)
