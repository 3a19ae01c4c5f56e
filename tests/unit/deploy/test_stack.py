"""`make stack`: what it starts, what it refuses, and what it does without Prometheus or Grafana."""

import os
import socket
import stat
import string
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest
import yaml

from deploy.stack import __main__ as stack
from deploy.stack import demo, grafana, prometheus
from jetspec_sglang.cli import serve
from jetspec_sglang.client.errors import CommandError
from tests.support.ports import free_port

URL, PAGE = "http://127.0.0.1:31999", "http://127.0.0.1:31998"


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """Makes programs the only ones on PATH; each writes its environment into a file."""
    folder = tmp_path / "programs" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(folder))

    def add(name):
        program = folder / name
        program.write_text(f'#!/bin/sh\n/usr/bin/env >"{tmp_path}/{name}.env"\necho "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return program

    return add


@pytest.fixture
def launched(monkeypatch):
    """Runs `make stack` up to the supervisor; gives the supervisor's plan."""
    plans = []
    monkeypatch.setattr(serve, "supervise", plans.append)
    # Leaves no variable behind.
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))

    def plan(args):
        controller = {"name": "controller", "command": ["controller"], "page": PAGE}
        companions = [] if args.plain or args.no_controller else [controller]
        return {"server": ["sglang", *args.rest], "url": URL, "companions": companions}

    monkeypatch.setattr(serve, "processes", plan)

    def run(*words):
        ports = ["--prometheus-port", str(free_port()), "--grafana-port", str(free_port())]
        assert stack.main([*ports, *words]) == 0
        return plans.pop()

    return run


def names(plan):
    return [companion["name"] for companion in plan["companions"]]


def test_everything_that_is_installed_is_started(launched, programs):
    programs("prometheus")
    programs("grafana")
    plan = launched("--demo", "--context-length", "512")
    assert names(plan) == ["controller", "Prometheus", "Grafana", "demo load"]
    assert plan["server"] == ["sglang", "--context-length", "512"]


def test_without_prometheus_one_line_names_the_package(launched, programs, capsys):
    programs("grafana")
    assert names(launched()) == ["controller"]
    said = [line for line in capsys.readouterr().err.splitlines() if "Prometheus" in line]
    assert len(said) == 1
    assert "apt-get install prometheus" in said[0]


def test_without_grafana_the_preview_is_named(launched, programs, capsys):
    programs("prometheus")
    assert names(launched()) == ["controller", "Prometheus"]
    assert "make preview" in capsys.readouterr().err


def test_plain_is_watched_too(launched, programs):
    programs("prometheus")
    plan = launched("--plain")
    assert names(plan) == ["Prometheus"]
    assert jobs(plan["companions"][0]).keys() == {"sglang", "prometheus"}


def jobs(companion):
    """{job: target} of the configuration that a Prometheus was started with."""
    [file] = [w.partition("=")[2] for w in companion["command"] if w.startswith("--config.file")]
    content = yaml.safe_load(Path(file).read_text())
    return {
        job["job_name"]: job["static_configs"][0]["targets"][0] for job in content["scrape_configs"]
    }


def test_prometheus_scrapes_both_with_the_repositorys_rules(launched, programs, tmp_path):
    programs("prometheus")
    plan = launched("--data", str(tmp_path / "data"), "--retention", "12h")
    companion = plan["companions"][1]
    assert jobs(companion) == {
        "sglang": "127.0.0.1:31999",
        "jetspec-controller": "127.0.0.1:31998",
        "prometheus": companion["page"].removeprefix("http://"),
    }
    content = yaml.safe_load((tmp_path / "data" / "prometheus.yml").read_text())
    patterns = [Path(pattern) for pattern in content["rule_files"]]
    assert all(pattern.is_absolute() for pattern in patterns)
    assert all([*pattern.parent.glob(pattern.name)] for pattern in patterns)
    assert "alerting" not in content
    assert "--storage.tsdb.retention.time=12h" in companion["command"]
    listening = next(w for w in companion["command"] if w.startswith("--web.listen-address"))
    assert listening.startswith("--web.listen-address=127.0.0.1:")


def test_a_tls_server_is_scraped_by_https():
    shipped = {"global": {}, "rule_files": [], "scrape_configs": [{"job_name": "sglang"}]}
    made = prometheus.configuration(shipped, {"sglang": "https://127.0.0.1:3"})
    [job] = made["scrape_configs"]
    assert job["scheme"] == "https"
    assert job["static_configs"] == [{"targets": ["127.0.0.1:3"]}]


def test_controller_reads_prometheus_when_asked(launched, programs):
    programs("prometheus")
    plan = launched("--controller-source", "prometheus")
    controller, watcher = plan["companions"]
    assert controller["command"][-2:] == ["--prometheus", watcher["page"]]
    assert launched()["companions"][0]["command"] == ["controller"]


@pytest.mark.parametrize(
    ("host", "set_by_hand", "threads"),
    [(True, None, "3"), (True, "4", "4"), (False, None, None)],
)
def test_one_core_is_left_to_the_other_processes(
    launched, programs, monkeypatch, host, set_by_hand, threads
):
    programs("prometheus")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if set_by_hand:
        monkeypatch.setenv("OMP_NUM_THREADS", set_by_hand)
    monkeypatch.setattr(serve, "host_platform", lambda: host)
    monkeypatch.setattr(stack, "usable_cpus", lambda: 4)
    launched()
    assert os.environ.get("OMP_NUM_THREADS") == threads


def test_a_source_for_no_controller_is_refused(launched, programs, capsys):
    programs("prometheus")
    ports = ["--prometheus-port", str(free_port()), "--grafana-port", str(free_port())]
    words = ["--no-controller", "--controller-source", "prometheus"]
    assert stack.main([*ports, *words]) == 2
    assert "--controller-source prometheus: this stack runs without" in capsys.readouterr().err


def test_data_lies_in_the_cache_by_server_port(launched, programs, tmp_path):
    programs("prometheus")
    launched("--port", "31997")
    assert (tmp_path / "cache" / "stack" / "31997" / "prometheus.yml").exists()


def refused(capsys, *words):
    status = stack.main(words)
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    return status, error


def test_a_port_in_use(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flag in ("--prometheus-port", "--grafana-port"):
            status, error = refused(capsys, flag, port)
            assert status == 1
            assert f"127.0.0.1:{port}" in error
            assert flag in error


@pytest.mark.parametrize(
    ("words", "status", "named"),
    [
        (["--prometheus-port", "30900"], 2, "--controller-port"),
        (["--grafana-port", "0"], 2, "--grafana-port is 0"),
        (["--node-rank", "1"], 2, "--node-rank"),
        (["--retention", "forever"], 2, "--retention is 'forever'"),
        (["--data", "/dev/null/data"], 1, "/dev/null/data"),
    ],
)
def test_bad_flags(capsys, words, status, named, programs, monkeypatch):
    programs("prometheus")
    programs("grafana")
    monkeypatch.setattr(
        serve, "processes", lambda args: {"server": [], "url": URL, "companions": []}
    )
    ports = ["--prometheus-port", str(free_port()), "--grafana-port", str(free_port())]
    lines = refused(capsys, *ports, *words)
    assert lines[0] == status
    assert named in lines[1]


def test_a_configuration_that_cannot_be_written(tmp_path):
    (tmp_path / "prometheus.yml").mkdir()
    with pytest.raises(CommandError, match=f"cannot write {tmp_path}/prometheus.yml .*--data"):
        prometheus.companion(tmp_path, 30910, "7d", {"sglang": URL})


def test_prometheus_as_source_needs_prometheus(capsys, programs):
    ports = ["--prometheus-port", str(free_port()), "--grafana-port", str(free_port())]
    assert stack.main([*ports, "--controller-source", "prometheus"]) == 1
    assert "needs Prometheus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"), [("grafana", ["server"]), ("grafana-server", [])], ids=["new", "old"]
)
def test_grafana_is_given_the_provisioning(programs, tmp_path, name, words):
    """With a program that only shows what it was given: no Grafana can be had here."""
    program = programs(name)
    (tmp_path / "programs" / "conf").mkdir()
    (tmp_path / "programs" / "conf" / "defaults.ini").touch()
    companion = grafana.companion(grafana.program(), tmp_path, 3000, "http://127.0.0.1:9")
    done = subprocess.run(
        ["/usr/bin/env", *companion["command"][1:]], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [*words, "--homepath", str(program.parents[1])]
    given = dict(
        line.partition("=")[::2] for line in (tmp_path / f"{name}.env").read_text().splitlines()
    )
    provisioning = Path(given["GF_PATHS_PROVISIONING"])
    [source] = read(provisioning / "datasources", given)
    assert source["datasources"][0]["url"] == "http://127.0.0.1:9"
    [boards] = read(provisioning / "dashboards", given)
    folder = Path(boards["providers"][0]["options"]["path"])
    assert Path(given["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).parent == folder
    assert Path(given["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).is_file()
    assert given["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert given["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def read(folder, variables):
    """Provisioning files as Grafana reads them: with variables in the values."""
    return [
        yaml.safe_load(string.Template(file.read_text()).safe_substitute(variables))
        for file in sorted(folder.glob("*.yml"))
    ]


def test_datasource_knows_the_scrape_interval():
    """Grafana makes $__rate_interval from it: with a wrong one, panels show holes."""
    [source] = read(grafana.PROVISIONING / "datasources", {"JETSPEC_PROMETHEUS_URL": "u"})
    shipped = yaml.safe_load((prometheus.SHIPPED / "prometheus.yml").read_text())
    interval = source["datasources"][0]["jsonData"]["timeInterval"]
    assert interval == shipped["global"]["scrape_interval"]


def test_demo_keeps_as_many_in_flight_as_asked():
    flying, most, bodies = 0, 0, []
    lock = threading.Lock()

    def answer(request):
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
            bodies.append(request.read())
        time.sleep(0.02)
        with lock:
            flying -= 1
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://x") as client:
        statuses = demo.stage(client, ["one", "two"], 3, 0.2)
    assert most == 3
    assert len(statuses) == len(bodies) >= 9
    streamed = sum(b'"stream":true' in body for body in bodies)
    assert abs(2 * streamed - len(bodies)) <= 1


def test_demo_sends_the_servers_key(launched, programs):
    plan = launched("--demo", "--api-key", "secret")
    assert os.environ.pop(demo.KEY) == "secret"
    assert "secret" not in " ".join(plan["companions"][-1]["command"])
    assert demo.connect(URL, "secret").headers["Authorization"] == "Bearer secret"
