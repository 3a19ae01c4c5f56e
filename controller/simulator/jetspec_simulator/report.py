"""The comparison of policies: every policy on every trace, and its loss against the oracle. No
I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jetspec_controller.core import PolicyConfig

from jetspec_simulator.arrivals import ClosedTrace, Trace
from jetspec_simulator.curves import Device
from jetspec_simulator.policies import contenders
from jetspec_simulator.run import LatencyBounds, RunResult, run
from jetspec_simulator.server import ServerSpec


@dataclass(frozen=True, slots=True)
class Line:
    """One policy on one trace, means over the seeds; ``worst_regret`` is over the seeds."""

    trace: str
    policy: str
    closed: bool
    rate: float
    goodput: float
    token_s: float
    p99_tpot_s: float
    changes: float
    regret: float
    worst_regret: float

    @property
    def static(self) -> bool:
        return self.policy.startswith("static")


def slower(one: RunResult | Line, other: RunResult | Line, closed: bool) -> float:
    """Share of speed lost against another policy: of tokens/s, or of seconds per token if arrivals
    are given (because then tokens/s hardly differ), whichever is more.
    """
    lost = 1.0 - one.rate / other.rate
    return lost if closed else max(lost, one.token_s / other.token_s - 1.0)


def compare(
    device: Device,
    traces: Callable[[int], Mapping[str, Trace]],
    config: PolicyConfig,
    seeds: Sequence[int],
    bounds: LatencyBounds,
    spec: ServerSpec | None = None,
    progress: Callable[[RunResult], None] | None = None,
) -> list[Line]:
    """Runs every contender; ``traces`` gives the traces of a seed. The oracle is the last line of
    each trace.
    """
    spec = spec or ServerSpec()
    runs: dict[tuple[str, str], list[tuple[RunResult, float]]] = {}
    closed: dict[str, bool] = {}
    for seed in seeds:
        for trace in traces(seed).values():
            closed[trace.name] = isinstance(trace, ClosedTrace)
            outcomes = []
            for policy in contenders(device, config):
                outcome = run(policy, device, trace, spec, seed, config.interval_s, bounds)
                outcomes.append(outcome)
                if progress is not None:
                    progress(outcome)
            for outcome in outcomes:
                pair = (outcome, slower(outcome, outcomes[-1], closed[trace.name]))
                runs.setdefault((trace.name, outcome.policy), []).append(pair)
    return [_line(trace, policy, closed[trace], pairs) for (trace, policy), pairs in runs.items()]


def best_static(lines: Iterable[Line], trace: str) -> Line:
    """The static budget that loses least on a trace."""
    return min(
        (line for line in lines if line.trace == trace and line.static),
        key=lambda line: line.regret,
    )


def markdown(lines: Sequence[Line]) -> str:
    """A table: a row per trace and policy; of the static budgets the best one."""
    rows = [
        "| trace | policy | tokens/s | goodput | ms per token | p99 TPOT ms | changes | regret "
        "| worst seed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for trace in dict.fromkeys(line.trace for line in lines):
        static = best_static(lines, trace)
        for line in lines:
            if line.trace != trace or (line.static and line is not static):
                continue
            name = f"best {line.policy}" if line is static else line.policy
            rows.append(
                f"| {trace} | {name} | {line.rate:.0f} | {line.goodput:.0f} "
                f"| {line.token_s * 1e3:.2f} | {line.p99_tpot_s * 1e3:.1f} "
                f"| {line.changes:.0f} | {line.regret:.1%} | {line.worst_regret:.1%} |"
            )
    return "\n".join(rows) + "\n"


def _line(trace: str, policy: str, closed: bool, pairs: Sequence[tuple[RunResult, float]]) -> Line:
    def mean(value: Callable[[RunResult], float]) -> float:
        return sum(value(outcome) for outcome, _ in pairs) / len(pairs)

    return Line(
        trace,
        policy,
        closed,
        mean(lambda o: o.rate),
        mean(lambda o: o.goodput),
        mean(lambda o: o.token_s),
        mean(lambda o: o.p99_tpot_s),
        mean(lambda o: o.changes),
        sum(lost for _, lost in pairs) / len(pairs),
        max(lost for _, lost in pairs),
    )
