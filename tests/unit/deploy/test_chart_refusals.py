"""Values that the chart refuses, each with a message that says what to change."""

from __future__ import annotations

from typing import Any

import pytest
from helm_python.errors import HelmError

from tests.unit.deploy.rendering import objects

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown section": ({"enginee": {}}, "additional properties 'enginee' not allowed"),
    "unknown key": ({"engine": {"replica": 2}}, "'/engine': additional properties 'replica'"),
    "no replicas": ({"engine": {"replicas": 0}}, "'/engine/replicas': minimum: got 0, want 1"),
    "replicas as text": (
        {"engine": {"replicas": "2"}},
        "'/engine/replicas': got string, want integer",
    ),
    "no such platform": (
        {"engine": {"platform": "tpu"}},
        "'/engine/platform': value must be one of 'gpu', 'host'",
    ),
    "no model": ({"engine": {"model": ""}}, "'/engine/model': minLength"),
    "no such setting": (
        {"engine": {"settings": {"budgett": 8}}},
        "'/engine/settings': additional properties 'budgett'",
    ),
    "budget too large": (
        {"engine": {"settings": {"budget": 5000}}},
        "'/engine/settings/budget': maximum: got 5,000, want 1,024",
    ),
    "no such policy key": (
        {"controller": {"policy": {"interval": 2}}},
        "'/controller/policy': additional properties 'interval'",
    ),
    "leader election": (
        {"controller": {"extraConfig": {"leader": {}}}},
        "additional properties 'leader'",
    ),
    "no such governor": (
        {"controller": {"policy": {"governor": "fast"}}},
        "'/controller/policy/governor': value must be one of",
    ),
    "a flag without dashes": (
        {"engine": {"args": ["tp-size=2"]}},
        "'/engine/args/0': 'tp-size=2' does not match pattern",
    ),
    "registry without slash": (
        {"imageRegistry": "registry.example.com"},
        "'/imageRegistry': 'registry.example.com' does not match pattern",
    ),
    "monitoring as a bool": (
        {"monitoring": {"enabled": True}},
        "'/monitoring/enabled': value must be one of 'auto', 'always', 'never'",
    ),
    "not a URL": (
        {"controller": {"prometheus": {"url": "prometheus:9090"}}},
        "'/controller/prometheus/url'",
    ),
    "tag latest": (
        {"engine": {"image": {"tag": "latest"}}},
        "engine.image.tag is latest: name a version",
    ),
    "gpu without gpus": (
        {"engine": {"gpus": 0}},
        "engine.gpus is 0 but engine.platform is gpu: give 1 or more, or take platform host",
    ),
    "host with gpus": (
        {"engine": {"platform": "host"}},
        "engine.gpus is 1 but engine.platform is host: set engine.gpus to 0",
    ),
    "a flag of the chart": (
        {"engine": {"args": ["--port=1"]}},
        "engine.args has --port: the chart sets it",
    ),
    "a key in the flags": (
        {"engine": {"args": ["--admin-api-key=x"]}},
        "engine.args has --admin-api-key",
    ),
    "scaling without controller": (
        {
            "controller": {"enabled": False},
            "autoscaling": {"enabled": True, "prometheusUrl": "http://p"},
        },
        "autoscaling.enabled needs controller.enabled",
    ),
    "scaling without metrics": (
        {"autoscaling": {"enabled": True}},
        "autoscaling.prometheusUrl is empty",
    ),
    "scaling backwards": (
        {"autoscaling": {"minReplicas": 9}},
        "autoscaling.minReplicas is 9, above autoscaling.maxReplicas 4",
    ),
    "min above max": (
        {"controller": {"policy": {"min_budget": 64, "max_budget": 16}}},
        "controller.policy.min_budget is 64, above controller.policy.max_budget 16",
    ),
    "a beginning of a flag": (
        {"engine": {"args": ["--admin-api=x"]}},
        "engine.args has --admin-api: the chart sets it",
    ),
    "another algorithm": (
        {"engine": {"args": ["--speculative-algorithm=EAGLE"]}},
        "engine.args has --speculative-algorithm",
    ),
    "a flag of the router": (
        {"router": {"args": ["--api-key=x"]}},
        "router.args has --api-key: the chart sets it",
    ),
    "a variable of the chart": (
        {"engine": {"env": [{"name": "JETSPEC_ADMIN_KEY_FILE", "value": ""}]}},
        "engine.env has JETSPEC_ADMIN_KEY_FILE: the chart sets it",
    ),
    "a variable with two values": (
        {"engine": {"env": [{"name": "A", "value": "1", "valueFrom": {}}]}},
        "'/engine/env/0'",
    ),
    "GPUs in two places": (
        {"engine": {"resources": {"limits": {"nvidia.com/gpu": 2}}}},
        "engine.resources has nvidia.com/gpu: give the number of GPUs in engine.gpus",
    ),
    "min above max for some engines": (
        {
            "controller": {
                "policy": {"min_budget": 64},
                "targetPolicies": {"a*": {"max_budget": 16}},
            }
        },
        "controller.targetPolicies.a*.min_budget is 64, above",
    ),
    "pinned to nothing": (
        {"controller": {"policy": {"governor": "pinned"}}},
        "controller.policy.governor is pinned: give pinned_budget too",
    ),
    "table without entries": (
        {"controller": {"policy": {"governor": "table"}}},
        "controller.policy.governor is table: give table too",
    ),
    "selector without Prometheus": (
        {"controller": {"prometheus": {"selector": 'cluster="a"'}}},
        "controller.prometheus.selector is set but controller.prometheus.url is empty",
    ),
    "a key in a ConfigMap": (
        {"controller": {"extraConfig": {"control": {"admin_key": "x"}}}},
        "controller.extraConfig.control has admin_key, which would stand in a ConfigMap",
    ),
    "killed before the router has heard": (
        {"engine": {"terminationGracePeriodSeconds": 10}},
        "'/engine/terminationGracePeriodSeconds': minimum: got 10, want 20",
    ),
    "scrapes too seldom": (
        {"monitoring": {"interval": "60s"}},
        "'/monitoring/interval': '60s' does not match pattern",
    ),
    "no address block": (
        {"networkPolicy": {"clients": [{"ipBlock": {}}]}},
        "missing property 'cidr'",
    ),
    "not a secret's name": ({"auth": {"existingSecret": "-"}}, "'/auth/existingSecret'"),
    "start budget above the largest": (
        {"engine": {"settings": {"budget": 64}, "args": ["--speculative-num-draft-tokens=32"]}},
        "engine.settings.budget is 64, above --speculative-num-draft-tokens 32",
    ),
}


@pytest.mark.parametrize(("values", "message"), CASES.values(), ids=CASES)
def test_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        objects(values)
    assert message in str(refused.value)


@pytest.mark.parametrize("name", ["123", "a.b", "my.jetspec"])
def test_release_names_that_no_service_can_have(name: str) -> None:
    with pytest.raises(HelmError) as refused:
        objects({}, name=name)
    assert f"the release's name {name} gives Services the name" in str(refused.value)
