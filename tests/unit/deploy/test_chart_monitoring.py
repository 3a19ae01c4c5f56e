"""Objects of the Prometheus Operator and of KEDA. No schema of theirs is at hand: what can be known of
them is checked here, rules and queries by promtool itself.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.deploy.programs import DEPLOY, passes
from tests.unit.deploy.rendering import SCALED, VALUE_SETS, objects, one

PER_REPLICA = 32


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    assert found is not None, "apt-get install prometheus"
    return found


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    return objects(VALUE_SETS["scaled"])


def test_rules_are_rules(found, promtool: str, tmp_path: Path) -> None:
    rule = one(found, "PrometheusRule", "")
    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["metadata"]["labels"]["release"] == "kps"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule["spec"]))
    passes([promtool, "check", "rules", str(tmp_path / "rules.yml")])


def test_monitors(found) -> None:
    jobs = {}
    for component in ("engine", "controller", "router"):
        monitor = one(found, "ServiceMonitor", f"-{component}")
        assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
        assert monitor["metadata"]["labels"]["release"] == "kps"
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["serving"]}
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["path"] == "/metrics"
        labels = {r["targetLabel"]: r for r in endpoint["relabelings"]}
        assert labels["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_name"]
        assert labels["address"]["sourceLabels"] == ["__address__"]
        jobs[component] = labels["job"]["replacement"]
    assert jobs == {
        "engine": "sglang",
        "controller": "jetspec-controller",
        "router": "jetspec-router",
    }


def test_scaled_object_names_the_engines(found) -> None:
    scaled = one(found, "ScaledObject", "-engine")
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    engine = one(found, "StatefulSet", "-engine")
    target = scaled["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", engine["metadata"]["name"])
    assert "replicas" not in engine["spec"], "two would set the replicas"
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    # KEDA takes texts only.
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
    assert trigger["metadata"]["serverAddress"].startswith("http://prometheus")
    assert trigger["metadata"]["threshold"] == str(PER_REPLICA)
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    # An HPA adds ceil(value / threshold) replicas; AverageValue says that the query is a sum.
    assert trigger["metricType"] == "AverageValue"


SCALING = {
    # requests of two replicas, their budgets above the floor of 16: (value of the query, replicas).
    "calm": ((10, 8), (64, 64), (18, 1)),
    "loaded, budgets above the floor": ((60, 60), (32, 32), (64, 2)),
    "loaded, one budget above the floor": ((60, 60), (16, 32), (64, 2)),
    "loaded, budgets at the floor": ((60, 60), (16, 16), (120, 4)),
    "calm, budgets at the floor": ((10, 8), (16, 16), (18, 1)),
}


@pytest.mark.parametrize(("load", "budgets", "wanted"), SCALING.values(), ids=SCALING)
def test_replicas_follow_the_budgets(promtool: str, tmp_path: Path, load, budgets, wanted) -> None:
    """Budget first, replicas second: Prometheus itself evaluates KEDA's query."""
    value, replicas = wanted
    series = {}
    for number in (0, 1):
        name = f"demo-jetspec-engine-{number}"
        pod = f'namespace="serving", service="demo-jetspec-engine", instance="{name}"'
        target = (
            f'namespace="serving", service="demo-jetspec-controller", job="jetspec-controller", '
            f'target="{name}"'
        )
        series |= {
            f'up{{{pod}, job="sglang"}}': 1,
            f'dp_rank:sglang_num_running_reqs:max{{{pod}, job="sglang", dp_rank="0"}}': load[number]
            - 4,
            f'dp_rank:sglang_num_queue_reqs:max{{{pod}, job="sglang", dp_rank="0"}}': 4,
            f"jetspec_controller_budget_current{{{target}}}": budgets[number],
            f"jetspec_controller_budget_floor{{{target}}}": 16,
        }
    # Other releases' engines count for nothing, in this namespace or in another one.
    for where in ('namespace="other", service="demo-jetspec-engine"', 'namespace="serving"'):
        series |= {
            f'up{{{where}, job="sglang", instance="x"}}': 1,
            f'dp_rank:sglang_num_running_reqs:max{{{where}, job="sglang"}}': 500,
            f'dp_rank:sglang_num_queue_reqs:max{{{where}, job="sglang"}}': 500,
            f'jetspec_controller_budget_current{{{where}, job="jetspec-controller"}}': 64,
            f'jetspec_controller_budget_floor{{{where}, job="jetspec-controller"}}': 1,
        }
    assert evaluated(promtool, tmp_path, series, value)
    assert -(-value // PER_REPLICA) == replicas


def test_no_metrics_are_no_load(promtool: str, tmp_path: Path) -> None:
    """The query is empty, which KEDA takes for an error and keeps the replicas."""
    assert evaluated(promtool, tmp_path, {}, None)


def test_without_the_controller_no_replica_is_added(promtool: str, tmp_path: Path) -> None:
    pod = 'namespace="serving", service="demo-jetspec-engine", job="sglang", instance="a"'
    series = {
        f"up{{{pod}}}": 1,
        f"dp_rank:sglang_num_running_reqs:max{{{pod}}}": 500,
        f"dp_rank:sglang_num_queue_reqs:max{{{pod}}}": 0,
    }
    assert evaluated(promtool, tmp_path, series, PER_REPLICA)


def evaluated(promtool: str, folder: Path, series: dict[str, float], value: float | None) -> bool:
    """Whether the ScaledObject's query has this value (None: no sample) with these series."""
    scaled = one(objects(SCALED), "ScaledObject", "-engine")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    rules = {"groups": [{"name": "keda", "rules": [{"record": "keda:query", "expr": query}]}]}
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    samples = [] if value is None else [{"labels": "keda:query", "value": value}]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": s, "values": f"{v}x4"} for s, v in series.items()],
                "promql_expr_test": [
                    {"expr": "sum(keda:query)", "eval_time": "1m", "exp_samples": []}
                ],
            }
        ],
    }
    if samples:
        check = test["tests"][0]["promql_expr_test"][0]
        check["exp_samples"] = [{"labels": "{}", "value": value}]
    (folder / "test.yml").write_text(yaml.safe_dump(test))
    return "SUCCESS" in passes([promtool, "test", "rules", "test.yml"], cwd=folder)


def test_jobs_are_the_alerts_jobs(found) -> None:
    """The alerts find engines and controllers by their jobs' names, in Compose and in the chart."""
    rules = json.dumps(one(found, "PrometheusRule", "")["spec"])
    patterns = set(re.findall(r'job=~\\"([^"\\]+)\\"', rules))
    assert len(patterns) >= 2
    compose = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    monitors = [o["spec"]["endpoints"][0] for o in found if o["kind"] == "ServiceMonitor"]
    for jobs in (
        {job["job_name"] for job in compose["scrape_configs"]},
        {endpoint["relabelings"][0]["replacement"] for endpoint in monitors},
    ):
        matched = {pattern: {j for j in jobs if re.fullmatch(pattern, j)} for pattern in patterns}
        assert all(len(each) == 1 for each in matched.values()), matched
