"""One server's tick as metrics. No I/O."""

from __future__ import annotations

from jetspec_controller.actuators import Outcome
from jetspec_controller.core import PolicyConfig, Reason
from jetspec_controller.core.budgets import allowed_budgets
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.managed import ManagedTarget
from jetspec_controller.state_file import Pin


def start_counters(metrics: ControllerMetrics, target: str) -> None:
    """Start a server's counters at 0, so that rates include the first event."""
    metrics.decision_errors_total.labels(target)
    metrics.drift_total.labels(target)
    metrics.applies_total.labels(target, Outcome.APPLIED)


def export(
    metrics: ControllerMetrics,
    managed: ManagedTarget,
    policy: PolicyConfig,
    pin: Pin | None,
    breaker_level: int,
) -> None:
    """Update all metrics from the last decision for a server."""
    decision, observation = managed.decision, managed.observation
    assert decision is not None
    assert observation is not None
    name = decision.target
    metrics.target_up.labels(name).set(managed.ready)
    metrics.show_mode(name, managed.mode)
    metrics.decisions_total.labels(name, decision.action, decision.reason).inc()
    if decision.reason in (Reason.DRIFT_REAPPLY, Reason.SECOND_WRITER):
        metrics.drift_total.labels(name).inc()
    metrics.second_writer.labels(name).set(managed.contested)
    for error in observation.errors:
        metrics.scrape_errors_total.labels(name, error.signal, error.fault).inc()
    for gauge, budget in (
        (metrics.budget_current, managed.budget_now),
        (metrics.budget_desired, managed.desired_now),
    ):
        if budget is not None:
            gauge.labels(name).set(budget)
    if managed.read_back is not None:
        allowed = allowed_budgets(policy, managed.read_back)
        if allowed:
            metrics.budget_floor.labels(name).set(allowed[0])
    metrics.budget_pinned.labels(name).set(0 if pin is None else pin.budget)
    metrics.breaker_state.labels(name).set(breaker_level)
    metrics.show_signal(name, "running_requests", observation.running_requests)
    metrics.show_signal(name, "waiting_requests", observation.waiting_requests)
    metrics.show_signal(name, "arrival_rate", observation.arrival_rate)
    metrics.show_signal(name, "tokens_per_second", observation.tokens_per_second)
    metrics.show_signal(name, "token_usage", observation.token_usage)
    metrics.show_signal(name, "expected_batch", decision.explanation.batch_expected)
    for signal, age in observation.ages:
        metrics.signal_age_seconds.labels(name, signal).set(age)
