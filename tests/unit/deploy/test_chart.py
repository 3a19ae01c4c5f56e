"""The chart's objects: valid, hardened, consistent with what they run."""

from __future__ import annotations

import argparse
import base64
import functools
import json
import tarfile
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import lint, package
from jetspec_controller import settings as controller_settings
from sglang_router.router_args import RouterArgs

from deploy.helm import schema
from jetspec_sglang.cli.flags import Flags
from jetspec_sglang.cli.launch import HEAD, MAX_BUDGET, MODEL, wants_jetspec
from jetspec_sglang.settings import Settings
from tests.unit.deploy import rendering
from tests.unit.deploy.programs import DEPLOY, ROOT
from tests.unit.deploy.rendering import CHART, VALUE_SETS, kinds, objects, one, pods, rendered
from tests.unit.test_readme import assert_sglang_flags

OLDEST, NEWEST = "1.27", "1.37"
CUSTOM = ("ServiceMonitor", "PrometheusRule", "ScaledObject")
FOLDER = "/run/secrets/jetspec"

every_set = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)


@every_set
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    report = lint(CHART, values, strict=True, namespace=rendering.NAMESPACE)
    assert not report["errors"]
    assert [m["error"] for m in report["messages"]] == ["icon is recommended"]


@pytest.fixture
def schemas_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """kubernetes-validate reads megabytes for every object; once a file is enough."""
    utils = kubernetes_validate.utils
    monkeypatch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_objects_are_valid_and_strictly_so(version: str, schemas_read_once: None) -> None:
    for name, values in VALUE_SETS.items():
        for each in objects(values):
            if each["kind"] not in CUSTOM:
                try:
                    kubernetes_validate.validate(each, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    pytest.fail(f"{name}: {each['kind']} {each['metadata']['name']}: {error}")


def test_names_that_yaml_takes_for_something_else(schemas_read_once: None) -> None:
    for name, namespace in (("true", "123"), ("on", "1e5"), ("a" * 53, "null")):
        for each in objects(VALUE_SETS["names-like-numbers"], name, namespace):
            assert len(each["metadata"]["name"]) <= 63
            if each["kind"] not in CUSTOM:
                kubernetes_validate.validate(each, NEWEST, strict=True)
            if each["kind"] == "ServiceMonitor":
                assert each["spec"]["namespaceSelector"]["matchNames"] == [namespace]


@every_set
def test_no_two_objects_have_one_name(values: dict[str, Any]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in objects(values)]
    assert len(set(names)) == len(names)


@every_set
def test_pods_are_hardened(values: dict[str, Any]) -> None:
    for spec in pods(objects(values)):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.get("hostNetwork")
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        tag = container["image"].rpartition(":")[2]
        assert tag not in ("latest", "")
        for name in ("readinessProbe", "livenessProbe"):
            assert container[name]["timeoutSeconds"] >= 5
        assert container["resources"]["limits"].get("memory") or values == VALUE_SETS["nulls"]


@every_set
def test_services_ports_and_volumes_meet(values: dict[str, Any]) -> None:
    """Every selector selects pods of this release, every port and volume that is named exists."""
    found = objects(values)
    workloads = [o for o in found if o["kind"] in rendering.WORKLOADS]
    for each in found:
        spec = each.get("spec", {})
        selector = spec.get("selector") if each["kind"] == "Service" else None
        selector = selector or (spec.get("selector", {}) or {}).get("matchLabels")
        if each["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        if each["kind"] in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
            matches = [
                w
                for w in workloads
                if selector.items() <= w["spec"]["template"]["metadata"]["labels"].items()
            ]
            assert len(matches) == 1, each["metadata"]["name"]
        if each["kind"] == "Service":
            ports = matches[0]["spec"]["template"]["spec"]["containers"][0]["ports"]
            assert {p["targetPort"] for p in spec["ports"]} <= {p["name"] for p in ports}
        if each["kind"] == "ServiceMonitor":
            services = [o for o in found if o["kind"] == "Service"]
            (service,) = [
                s for s in services if selector.items() <= s["metadata"]["labels"].items()
            ]
            assert spec["endpoints"][0]["port"] in {p["name"] for p in service["spec"]["ports"]}
    for each in workloads:
        spec = each["spec"]["template"]["spec"]
        mounts = {m["name"] for m in spec["containers"][0]["volumeMounts"]}
        claims = {c["metadata"]["name"] for c in each["spec"].get("volumeClaimTemplates", [])}
        assert mounts == {v["name"] for v in spec["volumes"]} | claims


@every_set
def test_engine_flags_are_those_of_jetspec_serve(values: dict[str, Any]) -> None:
    engine = one(objects(values), "StatefulSet", "-engine")
    container = engine["spec"]["template"]["spec"]["containers"][0]
    flags = Flags(container["args"])
    assert wants_jetspec(flags, plain=False)
    assert flags.integer("--port", 0) == 30000
    assert flags.given(*MODEL)
    assert flags.given(HEAD)
    assert_sglang_flags(container["args"])
    variables = {each["name"]: each.get("value", "") for each in container["env"]}
    start = Settings.from_environment(variables)
    largest = flags.integer(MAX_BUDGET, 256)
    assert (start.budget or 1) <= largest
    given = container["resources"]["limits"].get("nvidia.com/gpu", 0)
    assert f"--model-path={engine_values(values)['model']}" in container["args"]
    merged = engine_values(values)
    assert given == merged["gpus"]
    assert flags.integer("--tp-size", 1) == max(1, merged["gpus"])


def engine_values(values: dict[str, Any]) -> dict[str, Any]:
    return rendering.chart().merge_values(values)["engine"]


@every_set
def test_controller_configuration_is_the_controllers_own(values: dict[str, Any], tmp_path) -> None:
    """Loaded by its settings model; every file it names is mounted."""
    found = objects(values)
    if values.get("controller", {}).get("enabled") is False:
        assert "demo-jetspec-controller" not in {o["metadata"]["name"] for o in found}
        return
    text = one(found, "ConfigMap", "-controller")["data"]["controller.yaml"]
    (tmp_path / "controller.yaml").write_text(text)
    loaded = controller_settings.load(tmp_path / "controller.yaml")
    kubernetes = loaded.discovery.kubernetes
    assert kubernetes is not None
    service = one(found, "Service", "-engine")
    assert kubernetes.service == service["metadata"]["name"]
    assert kubernetes.namespace == rendering.NAMESPACE
    assert kubernetes.port in {p["name"] for p in service["spec"]["ports"]}
    assert "leader" not in yaml.safe_load(text)
    spec = one(found, "Deployment", "-controller")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    volumes = spec["template"]["spec"]["volumes"]
    (items,) = [v["secret"]["items"] for v in volumes if "secret" in v]
    mounted = {f"{FOLDER}/{item['path']}" for item in items}
    keys = (loaded.control.admin_key, loaded.control.api_key)
    files = {str(key.file) for key in keys if key is not None}
    assert files | {str(loaded.api.token_file)} == mounted


def test_policy_of_the_values_reaches_the_controller() -> None:
    found = objects(VALUE_SETS["prometheus-source"])
    config = yaml.safe_load(one(found, "ConfigMap", "-controller")["data"]["controller.yaml"])
    assert config["policy"] == {"min_budget": 8, "tpot_objective_s": 0.05, "table": {"8": 16}}
    assert config["target_policies"] == {"demo-jetspec-engine-*": {"max_budget": 64}}
    assert config["control"]["timeout_s"] == 5
    assert config["control"]["admin_key"] == {"file": f"{FOLDER}/admin-key"}
    assert config["prometheus"]["instance_label"] == "address"


def test_controller_may_list_what_it_discovers_and_nothing_else() -> None:
    (rule,) = one(objects({}), "Role", "-controller")["rules"]
    assert rule == {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list"],
    }


@every_set
def test_no_secret_outside_secrets(values: dict[str, Any]) -> None:
    found = objects(values)
    made = [o for o in found if o["kind"] == "Secret"]
    assert bool(made) != bool(values.get("auth", {}).get("existingSecret"))
    decoded = {base64.b64decode(v).decode() for o in made for v in o["data"].values()}
    keys = [text.split()[-1] for text in decoded]
    assert all(len(key) == 40 for key in keys)
    others = json.dumps([o for o in found if o["kind"] != "Secret"])
    assert not [key for key in keys if key in others]
    for spec in pods(found):
        for variable in spec["containers"][0].get("env", []):
            assert variable["name"].endswith("_FILE") or "KEY" not in variable["name"]


def test_existing_secret_is_mounted() -> None:
    for spec in pods(objects(VALUE_SETS["existing-secret"])):
        (volume,) = [v for v in spec["volumes"] if v["name"] == "keys"]
        assert volume["secret"]["secretName"] == "keys"
        assert "api-key" in {item["key"] for item in volume["secret"]["items"]}


def test_engine_port_is_open_to_router_controller_and_prometheus_alone() -> None:
    policy = one(objects({}), "NetworkPolicy", "-engine")["spec"]
    (rule,) = policy["ingress"]
    allowed = [json.dumps(peer) for peer in rule["from"]]
    assert len(allowed) == 3
    assert '"app.kubernetes.io/component": "controller"' in allowed[0]
    assert '"app.kubernetes.io/component": "router"' in allowed[1]
    assert '"kubernetes.io/metadata.name": "monitoring"' in allowed[2]
    without = one(objects({"router": {"enabled": False}}), "NetworkPolicy", "-engine")["spec"]
    assert {"podSelector": {}} in without["ingress"][0]["from"]


def test_clients_door_leads_to_the_router_or_the_engines() -> None:
    for enabled, component in ((True, "router"), (False, "engine")):
        found = objects({"router": {"enabled": enabled}})
        selector = one(found, "Service", "")["spec"]["selector"]
        assert selector["app.kubernetes.io/component"] == component


def test_router_finds_the_engines_pods() -> None:
    found = objects({})
    args = one(found, "Deployment", "-router")["spec"]["template"]["spec"]["containers"][0]["args"]
    chosen = dict(pair.split("=") for pair in args[args.index("--selector") + 1 :])
    engine = one(found, "StatefulSet", "-engine")["spec"]["template"]["metadata"]["labels"]
    assert chosen.items() <= engine.items()
    assert "--service-discovery-namespace=serving" in args
    (rule,) = one(found, "Role", "-router")["rules"]
    assert rule["resources"] == ["pods"]


def test_router_flags_exist() -> None:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser)
    router = one(objects({}), "Deployment", "-router")["spec"]["template"]["spec"]
    parsed = parser.parse_args(router["containers"][0]["args"])
    assert parsed.service_discovery
    assert "app.kubernetes.io/component=engine" in parsed.selector
    assert parsed.service_discovery_port == 30000


def test_monitoring_follows_the_cluster() -> None:
    assert not kinds(objects({})) & {"ServiceMonitor", "PrometheusRule"}
    assert kinds(objects(rendering.MONITORED)) >= {"ServiceMonitor", "PrometheusRule"}
    assert "no Prometheus Operator" in rendered({})["NOTES.txt"]


def test_rules_and_dashboards_are_the_repositorys() -> None:
    found = objects(rendering.MONITORED)
    groups = one(found, "PrometheusRule", "")["spec"]["groups"]
    files = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
    assert files
    assert groups == [g for file in files for g in yaml.safe_load(file.read_text())["groups"]]
    wanted = {file.name: file.read_text() for file in (ROOT / "dashboards/grafana").glob("*.json")}
    assert wanted
    maps = [o for o in found if "-dashboard-" in o["metadata"]["name"]]
    assert {name: text for o in maps for name, text in o["data"].items()} == wanted
    assert all(o["metadata"]["labels"]["grafana_dashboard"] == "1" for o in maps)
    assert all(len(json.dumps(o)) < 1 << 20 for o in maps), "a ConfigMap holds 1 MiB"


def test_a_release_without_controller_has_no_alerts_of_one() -> None:
    (rule,) = [o for o in objects(VALUE_SETS["no-controller"]) if o["kind"] == "PrometheusRule"]
    names = {group["name"] for group in rule["spec"]["groups"]}
    assert "jetspec-servers" in names
    assert "JetSpecControllerDown" not in json.dumps(rule)


def test_package_holds_what_the_links_name(tmp_path) -> None:
    with tarfile.open(package(CHART, destination=tmp_path)) as archive:
        names = archive.getnames()
    assert any(name.startswith("jetspec/files/rules/") for name in names)
    assert any(name.startswith("jetspec/files/dashboards/") for name in names)


def test_schema_holds_the_models_of_engine_and_controller() -> None:
    assert schema.SCHEMA.read_text() == schema.written(), "run `make chart`"


def test_schema_knows_every_value_and_refuses_others() -> None:
    def check(part: dict[str, Any], values: dict[str, Any], path: str) -> None:
        if part.get("properties") is None:
            return
        assert part["additionalProperties"] is False, path
        assert set(values) <= set(part["properties"]), path
        for name, value in values.items():
            if isinstance(value, dict):
                check(part["properties"][name], value, f"{path}.{name}")

    check(json.loads(schema.SCHEMA.read_text()), rendering.chart().values, "values")


def test_notes_say_what_to_open() -> None:
    notes = rendered({})["NOTES.txt"]
    assert "http://demo-jetspec.serving:30000/v1" in notes
    assert "port-forward service/demo-jetspec-controller 30900" in notes
    assert "There is no controller" in rendered(VALUE_SETS["no-controller"])["NOTES.txt"]
    open_route = rendered({"router": {"enabled": False}})["NOTES.txt"]
    assert "Only the admin key protects it" in " ".join(open_route.split())
