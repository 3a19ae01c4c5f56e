"""One settings model for flags, environment and file; every mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from jetspec_controller.cli import _parser, flags
from jetspec_controller.connections import Endpoint, Secret, Tls
from jetspec_controller.settings import SettingsError, load, policy_for

FILE = """
targets:
  - http://10.0.0.1:30000
  - {url: http://10.0.0.2:30000, id: second, policy: {min_budget: 4}}
policy: {max_budget: 64, interval_s: 5}
api: {port: 1234}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "controller.yaml"
    file.write_text(FILE)
    return file


def test_flags_win_over_environment_over_file(path: Path, monkeypatch) -> None:
    monkeypatch.setenv("JETSPEC_CONTROLLER_POLICY__INTERVAL_S", "3")
    monkeypatch.setenv("JETSPEC_CONTROLLER_POLICY__MIN_BUDGET", "2")
    options = _parser().parse_args(["run", "--config", str(path), "--interval", "1"])
    settings = load(path, flags(options))
    assert settings.policy.interval_s == 1
    assert (settings.policy.min_budget, settings.policy.max_budget) == (2, 64)
    assert settings.api.port == 1234
    assert [target.name for target in settings.targets] == ["10.0.0.1:30000", "second"]


def test_every_flag_reaches_the_model(tmp_path: Path) -> None:
    line = (
        "run --target http://a:1 --target http://b:2 --prometheus http://p:9090 --port 7 "
        f"--host 0.0.0.0 --interval 4 --token-file {tmp_path}/t --insecure --record {tmp_path}/r"
    )
    settings = load(None, flags(_parser().parse_args(line.split())))
    assert [target.url for target in settings.targets] == ["http://a:1", "http://b:2"]
    assert settings.prometheus.url == "http://p:9090"
    assert (settings.api.host, settings.api.port, settings.api.insecure) == ("0.0.0.0", 7, True)
    assert settings.api.token_file == tmp_path / "t"
    assert settings.record == tmp_path / "r"
    assert settings.policy.interval_s == 4


def test_a_prometheus_flag_keeps_the_file_s_other_keys(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("targets: ['http://a:1']\nprometheus: {url: 'http://x', selector: 'job=\"s\"'}")
    settings = load(file, {"prometheus": {"url": "http://p:9090"}})
    assert (settings.prometheus.url, settings.prometheus.selector) == ("http://p:9090", 'job="s"')


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"policy": {"min_budget": 0}}, "policy.min_budget"),
        ({"policy": {"min_budget": 64, "max_budget": 16}}, "min_budget"),
        ({"targets": ["ftp://a"]}, "'ftp://a'"),
        ({"targets": ["http://user:secret@a"]}, "credentials"),
        ({"targets": ["http://a:1", "http://a:1/"]}, "'a:1'"),
        ({"targets": []}, "none given"),
        ({"targets": [{"url": "http://a:1", "policy": {"max_budget": 0}}]}, "a:1: policy.max_b"),
        ({"targets": [{"url": "http://a:1", "id": "a/b"}]}, "targets.0.id"),
        (
            {"targets": ["http://a:1"], "target_policies": {"big": {"max_budget": 0}}},
            "target_policies: big: policy.max_b",
        ),
        ({"api": {"port": 70000}}, "api.port"),
        ({"api": {"host": ""}}, "api.host"),
        ({"targets": ["http://a b"]}, "'http://a b'"),
        ({"targets": ["http://a:port"]}, "'http://a:port'"),
        ({"targets": ["http://a:70000"]}, "'http://a:70000'"),
        ({"targets": ["http://[::1"]}, "'http://[::1'"),
        ({"targets": ["http://"]}, "'http://'"),
        ({"targets": ["http://a/?x=1"]}, "'http://a/?x=1'"),
        ({"prometheus": {"url": "http://p", "headers": {"X": "a\nb"}}}, "prometheus.headers.X"),
        ({"prometheus": {"url": "http://p", "headers": {"a b": "c"}}}, "prometheus.headers.a b"),
        ({"discovery": {"prometheus": {}}}, "prometheus.url"),
        ({"prometheus": {"url": "http://p", "timeout_s": 0}}, "prometheus.timeout_s"),
        ({"control": {"admin_key": {"file": "/a", "env": "B"}}}, "exactly one"),
        ({"control": {"admin_key": {}}}, "exactly one"),
        ({"on_shutdown": "explode"}, "on_shutdown"),
    ],
)
def test_mistakes_are_named(given: dict, named: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(None, {"targets": ["http://a:1"], **given})
    assert named in str(error.value)


@pytest.mark.parametrize("content", ["- a\n", "a: [\n", "3\n", "\x00", "1: 2\n"])
def test_file_that_is_not_a_mapping(tmp_path: Path, content: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=r"c\.yaml"):
        load(file)
    with pytest.raises(SettingsError, match="No such file"):
        load(tmp_path / "none.yaml")


def test_digest_names_the_content() -> None:
    one = load(None, {"targets": ["http://a:1"]})
    assert one.digest == load(None, {"targets": ["http://a:1"]}).digest
    assert one.digest != load(None, {"targets": ["http://a:2"]}).digest


def test_policy_overrides_are_validated() -> None:
    policy = load(None, {"targets": ["http://a:1"]}).policy
    assert policy_for(policy, {}) is policy
    assert policy_for(policy, {"max_budget": 8}).max_budget == 8
    with pytest.raises(ValueError, match="max_budget"):
        policy_for(policy, {"max_budget": 0})


def test_secret_is_read_at_each_use_and_never_shown(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "key"
    file.write_text("first\nsecond line\n")
    secret = Secret(file=file)
    assert secret.read() == "first"
    file.write_text("rotated")
    assert secret.read() == "rotated"
    assert "rotated" not in repr(secret)
    file.write_text("\n")
    with pytest.raises(ValueError, match="empty"):
        secret.read()
    with pytest.raises(ValueError, match="NOT_SET"):
        Secret(env="NOT_SET").read()
    monkeypatch.setenv("SET", "value")
    assert Secret(env="SET").read() == "value"


def test_endpoint_headers(monkeypatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    bearer = Endpoint(url="http://p/", bearer=Secret(env="TOKEN"), headers={"X-Scope-OrgID": "1"})
    assert bearer.url == "http://p"
    assert bearer.request_headers() == {"X-Scope-OrgID": "1", "Authorization": "Bearer t"}
    basic = Endpoint(url="http://p", basic={"username": "u", "password": {"env": "TOKEN"}})
    assert basic.request_headers() == {"Authorization": "Basic dTp0"}
    with pytest.raises(ValueError, match="at most one"):
        Endpoint(url="http://p", bearer=Secret(env="T"), basic=basic.basic)


def test_tls_files_that_cannot_be_loaded(tmp_path: Path) -> None:
    for field in ("ca_file", "cert_file"):
        with pytest.raises(ValueError, match=rf"tls\.{field}: .*none\.pem"):
            Tls(**{field: tmp_path / "none.pem"}).context()
