"""`jetspec-controller replay`: decide again from recorded observations, with the same policy or
another one. Reads the recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jetspec_controller.core import Decision, TargetState, decide
from jetspec_controller.recorder import read
from jetspec_controller.settings import explain, policy_for


def replay(
    recording: Path, overrides: Mapping[str, Any], *, target: str | None = None
) -> Iterator[str]:
    """One line per decision. Raises ValueError for a bad line or policy key, or OSError."""
    states: dict[str, TargetState] = {}
    for recorded in read(recording):
        name = recorded.observation.target
        if target not in (None, name):
            continue
        try:
            policy = policy_for(recorded.policy, overrides)
        except ValidationError as error:
            raise ValueError(f"policy.{explain(error)}") from error
        decision, states[name] = decide(
            policy, recorded.observation, states.get(name, TargetState()), recorded.now
        )
        yield line(decision)


def line(decision: Decision) -> str:
    """Time, server, action, budget, reason, and what it rests on."""
    explanation = decision.explanation
    at = datetime.fromtimestamp(decision.at, UTC).isoformat(timespec="seconds")
    what = f"{decision.action} {decision.budget if decision.budget is not None else '-'}"
    if decision.table:
        what += " " + ",".join(f"{batch}:{budget}" for batch, budget in decision.table)
    basis = []
    if explanation.batch_now is not None:
        basis.append(f"batch {explanation.batch_now:.1f} → {explanation.batch_expected or 0:.1f}")
    if explanation.best_budget is not None:
        basis.append(f"best {explanation.best_budget}")
    if explanation.gain is not None:
        basis.append(f"gain {explanation.gain:+.1%}")
    basis += [f"{fault.signal} {fault.fault}" for fault in explanation.faults]
    return f"{at} {decision.target} {what} {decision.reason} ({'; '.join(basis)})"
