"""The chart, rendered offline with Helm's own library."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from helm_python import Chart

from tests.unit.deploy.programs import DEPLOY

CHART = DEPLOY / "helm" / "jetspec"
EXAMPLES = DEPLOY / "helm" / "examples"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: ten times as fast."""
RELEASE, NAMESPACE = "demo", "serving"

MONITORED = {"monitoring": {"enabled": "always", "labels": {"release": "kps"}}}
SCALED = {"autoscaling": {"enabled": True, "prometheusUrl": "http://prometheus.monitoring:9090"}}
VALUE_SETS: dict[str, dict[str, Any]] = {
    "default": {},
    "host": yaml.safe_load((EXAMPLES / "values-host.yaml").read_text()),
    "production": yaml.safe_load((EXAMPLES / "values-production.yaml").read_text()),
    "two-gpus-no-router": {"router": {"enabled": False}, "engine": {"gpus": 2, "replicas": 3}},
    "monitored": MONITORED,
    "scaled": {**MONITORED, **SCALED},
    "existing-secret": {"auth": {"existingSecret": "keys", "clientKey": True}},
    "no-controller": {"controller": {"enabled": False}, **MONITORED},
    "no-claims": {
        "engine": {"cache": {"size": ""}, "models": {"existingClaim": "models"}},
        "controller": {"state": {"existingClaim": "pins"}},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
    },
    "nobody-reads": {"networkPolicy": {"prometheus": []}, "router": {"enabled": False}},
    "names-like-numbers": {
        **MONITORED,
        "engine": {
            "model": "/models/a #1: b",
            "head": "null",
            "cache": {"storageClass": "1"},
            "models": {"existingClaim": "2"},
            "huggingFaceSecret": "3",
        },
        "controller": {"state": {"storageClass": "1", "existingClaim": ""}},
        "auth": {"existingSecret": "123", "clientKey": True},
    },
    # As `key: null` in a values file: the default is taken away.
    "nulls": {
        "engine": {
            "settings": None,
            "args": None,
            "env": None,
            "resources": {"requests": None, "limits": None},
        },
        "controller": {"policy": None, "targetPolicies": None, "extraConfig": None},
        "networkPolicy": {"operators": None, "prometheus": None},
    },
    "prometheus-source": {
        "controller": {
            "prometheus": {"url": "http://prometheus.monitoring:9090"},
            "policy": {"min_budget": 8, "tpot_objective_s": 0.05, "table": {"8": 16}},
            "targetPolicies": {"demo-jetspec-engine-*": {"max_budget": 64}},
            "extraConfig": {"control": {"timeout_s": 5}},
        },
    },
}


@cache
def chart() -> Chart:
    return Chart.load(CHART)


def rendered(
    values: Mapping[str, Any], name: str = RELEASE, namespace: str = NAMESPACE
) -> dict[str, str]:
    """Template name to text, NOTES.txt included. Each set of values is rendered once."""
    return dict(_rendered(json.dumps(values, sort_keys=True), name, namespace))


def objects(
    values: Mapping[str, Any], name: str = RELEASE, namespace: str = NAMESPACE
) -> list[dict[str, Any]]:
    return copy.deepcopy(_objects(json.dumps(values, sort_keys=True), name, namespace))


@cache
def _rendered(values: str, name: str, namespace: str) -> dict[str, str]:
    found = chart().render(json.loads(values), name=name, namespace=namespace)
    return {name.rpartition("/")[2]: text for name, text in found.items()}


@cache
def _objects(values: str, name: str, namespace: str) -> list[dict[str, Any]]:
    found = _rendered(values, name, namespace)
    texts = [text for template, text in found.items() if template != "NOTES.txt"]
    return [each for text in texts for each in yaml.load_all(text, LOADER) if each]


def one(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The object of a kind that the chart names so: `-engine`, or nothing for the release's own."""
    full = f"{RELEASE}-jetspec{name}"
    (match,) = [o for o in found if (o["kind"], o["metadata"]["name"]) == (kind, full)]
    return match


def kinds(found: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in found}


def pods(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pod specs of everything that starts pods."""
    return [o["spec"]["template"]["spec"] for o in found if o["kind"] in WORKLOADS]


WORKLOADS = ("Deployment", "StatefulSet")
