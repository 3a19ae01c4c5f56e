"""The comparison of policies: every policy on every trace, and what it loses to the oracle. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..core import PolicyConfig
from .arrivals import ClosedTrace, Trace
from .curves import Device
from .policies import contenders
from .run import Outcome, run
from .server import ServerSpec


@dataclass(frozen=True, slots=True)
class Line:
    """One policy on one trace, means over the seeds; ``worst_regret`` is over the seeds."""

    trace: str
    policy: str
    goodput: float  # output tokens/s
    tpot_s: float
    p99_tpot_s: float
    changes: float
    regret: float
    worst_regret: float


def regret(outcome: Outcome, oracle: Outcome, closed: bool) -> float:
    """Share of speed lost to the oracle: of goodput, and where arrivals are given (so that goodput
    can hardly differ) of mean TPOT, whichever is more.
    """
    lost = 1.0 - outcome.goodput / oracle.goodput
    return lost if closed else max(lost, outcome.mean_tpot_s / oracle.mean_tpot_s - 1.0)


def compare(
    device: Device,
    traces: Callable[[int], Mapping[str, Trace]],
    config: PolicyConfig,
    seeds: Sequence[int],
    spec: ServerSpec | None = None,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Line]:
    """Runs every contender; ``traces`` gives the traces of a seed. The oracle is the last line of
    each trace.
    """
    runs: dict[tuple[str, str], list[tuple[Outcome, float]]] = {}
    for seed in seeds:
        for trace in traces(seed).values():
            outcomes = []
            for policy in contenders(device, config):
                outcome = run(policy, device, trace, spec or ServerSpec(), seed, config.interval_s)
                outcomes.append(outcome)
                if progress is not None:
                    progress(outcome)
            closed = isinstance(trace, ClosedTrace)
            for outcome in outcomes:
                pair = (outcome, regret(outcome, outcomes[-1], closed))
                runs.setdefault((trace.name, outcome.policy), []).append(pair)
    return [_line(trace, policy, pairs) for (trace, policy), pairs in runs.items()]


def best_static(lines: Iterable[Line], trace: str) -> Line:
    """The static budget that loses least on a trace."""
    return min(
        (line for line in lines if line.trace == trace and line.policy.startswith("static")),
        key=lambda line: line.regret,
    )


def markdown(lines: Sequence[Line]) -> str:
    """A table: a row per trace and policy; of the static budgets the best one."""
    rows = [
        "| trace | policy | tokens/s | mean TPOT ms | p99 TPOT ms | changes | regret | worst seed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for trace in dict.fromkeys(line.trace for line in lines):
        static = best_static(lines, trace)
        for line in lines:
            if line.trace != trace or (line.policy.startswith("static") and line is not static):
                continue
            name = f"best {line.policy}" if line is static else line.policy
            rows.append(
                f"| {trace} | {name} | {line.goodput:.0f} | {line.tpot_s * 1e3:.2f} "
                f"| {line.p99_tpot_s * 1e3:.1f} | {line.changes:.0f} "
                f"| {line.regret:.1%} | {line.worst_regret:.1%} |"
            )
    return "\n".join(rows) + "\n"


def _line(trace: str, policy: str, pairs: Sequence[tuple[Outcome, float]]) -> Line:
    def mean(value: Callable[[Outcome], float]) -> float:
        return sum(value(outcome) for outcome, _ in pairs) / len(pairs)

    return Line(
        trace,
        policy,
        mean(lambda o: o.goodput),
        mean(lambda o: o.mean_tpot_s),
        mean(lambda o: o.p99_tpot_s),
        mean(lambda o: o.changes),
        sum(lost for _, lost in pairs) / len(pairs),
        max(lost for _, lost in pairs),
    )
