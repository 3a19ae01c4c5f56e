"""Rules and alerts: valid for Prometheus, tested both ways, each with a runbook that exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.promql import RANKS, REPLICAS
from dashboards.rules import ALERTS, RECORDING, recordings
from tests.support.promql import names

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
OPERATE = (ROOT / "docs" / "operate.md").read_text()
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
CASES = [case for file in TESTS for case in yaml.safe_load(file.read_text())["tests"]]
EVERY_ALERT = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
SERVER = "cluster, namespace, job, instance"


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_valid() -> None:
    run("promtool", "check", "rules", "--lint-fatal", RECORDING, ALERTS)


def test_configurations_are_valid() -> None:
    run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    run("amtool", "check-config", PROMETHEUS / "alertmanager.example.yml")


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_promtools_own_tests_pass(file) -> None:
    run("promtool", "test", "rules", file)


def test_every_recording_has_a_promtool_test() -> None:
    tested: set[str] = set()
    for case in yaml.safe_load((PROMETHEUS / "tests" / "recording.yml").read_text())["tests"]:
        for check in case["promql_expr_test"]:
            tested |= names(check["expr"])
    assert set(recordings()) - tested == set()


@EVERY_ALERT
def test_alert_is_tested_firing_and_silent(rule) -> None:
    expected = [
        bool(check["exp_alerts"])
        for case in CASES
        for check in case.get("alert_rule_test", ())
        if check["alertname"] == rule["alert"]
    ]
    assert {True, False} == set(expected)


@EVERY_ALERT
def test_alert_says_what_to_do(rule) -> None:
    assert rule["alert"].startswith("JetSpec")
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert "for" in rule
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["description"].endswith(".")
    anchor = rule["alert"].lower()
    assert rule["annotations"]["runbook_url"].endswith(f"/operate.md#{anchor}")


@EVERY_ALERT
def test_alert_has_a_runbook_section(rule) -> None:
    section = OPERATE.split(f"### {rule['alert']}\n")
    assert len(section) == 2, "one heading of the alert's name in docs/operate.md"
    body = section[1].split("\n#")[0]
    for part in ("**Means**", "**Look**", "**Do**"):
        assert part in body


def test_runbook_sections_belong_to_alerts() -> None:
    assert set(re.findall(r"^### (JetSpec\w+)$", OPERATE, re.MULTILINE)) == {
        rule["alert"] for rule in RULES
    }


@EVERY_ALERT
def test_alert_counts_copies_once(rule) -> None:
    """Sums add distinct series only: what can be a copy goes through max first, or through a
    recorded series; a ratio whose two sides count the same copies is right as it is."""
    if rule["alert"] == "JetSpecAcceptLengthCollapsed":
        return
    for inside in re.findall(r"sum by \([^)]*\) \(([^)]*)", rule["expr"]):
        assert inside.startswith(("max without (", "rate(dp_rank", "rate(server")), inside


@EVERY_ALERT
def test_alert_keeps_the_labels_that_identify_a_server(rule) -> None:
    for by in re.findall(r"(?:max|min|sum) by \(([^)]*)\)", rule["expr"]):
        assert by.startswith(SERVER)


def test_no_alert_needs_leader_election() -> None:
    assert "is_leader" not in ALERTS.read_text()


def test_recordings_drop_exactly_the_labels_of_copies() -> None:
    for rule in recordings().values():
        for group in re.findall(r"max without \(([^)]*)\)", " ".join(rule.expr.split())):
            labels = set(group.split(", "))
            assert labels in (set(RANKS + REPLICAS), set(REPLICAS), {"rows"})


def test_inhibitions_name_alerts_that_exist() -> None:
    config = yaml.safe_load((PROMETHEUS / "alertmanager.example.yml").read_text())
    known = {rule["alert"] for rule in RULES}
    for rule in config["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            pattern = re.search(r'"(.*)"', matcher)[1]
            matching = {name for name in known if re.fullmatch(pattern, name)}
            alternatives = re.search(r"\((.*)\)", pattern)
            assert len(matching) == (alternatives[1].count("|") + 1 if alternatives else 1)


def test_scrapes_are_as_frequent_as_the_controller_needs() -> None:
    from jetspec_controller.core import PolicyConfig

    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    seconds = float(config["global"]["scrape_interval"].removesuffix("s"))
    assert seconds <= PolicyConfig().max_age_s / 2
    jobs = {scrape["job_name"] for scrape in config["scrape_configs"]}
    for pattern in set(re.findall(r'job=~"([^"]*)"', ALERTS.read_text())):
        assert sum(bool(re.fullmatch(pattern, job)) for job in jobs) == 1


def test_every_group_with_rates_of_recorded_counters_is_evaluated_at_the_scrape_interval() -> None:
    groups = {group["name"]: group for group in yaml.safe_load(RECORDING.read_text())["groups"]}
    assert {group["interval"] for name, group in groups.items() if name != "jetspec-slo"} == {"5s"}
