"""Goals of the governor in the comparison of policies, and whether they are met. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetspec_simulator.policies import DEFAULT
from jetspec_simulator.report import Line, best_static, slower
from jetspec_simulator.scenarios import IDLE_TO_SATURATION

MOST_REGRET = 0.05
MOST_BEHIND_STATIC = 0.02
LEAST_GAIN = 0.15


@dataclass(frozen=True, slots=True)
class Verdict:
    """One goal, the measured figure that is closest to breaking it, and whether it is met."""

    demand: str
    measured: str
    met: bool


def judge(lines: Sequence[Line], policy: str = DEFAULT) -> list[Verdict]:
    """The verdicts on one policy; the last one only where its trace was run."""
    own = {line.trace: line for line in lines if line.policy == policy}
    regret, where = max((line.regret, trace) for trace, line in own.items())
    behind, there = max(
        (slower(line, best_static(lines, trace), line.closed), trace) for trace, line in own.items()
    )
    verdicts = [
        Verdict(
            f"regret against the oracle at most {MOST_REGRET:.0%} on every trace",
            f"worst {regret:.1%} ({where})",
            regret <= MOST_REGRET,
        ),
        Verdict(
            f"at most {MOST_BEHIND_STATIC:.0%} slower than the best static budget of each trace",
            f"worst {behind:.1%} ({there})",
            behind <= MOST_BEHIND_STATIC,
        ),
    ]
    if IDLE_TO_SATURATION in own:
        verdicts.append(_goodput(lines, own[IDLE_TO_SATURATION]))
    return verdicts


def markdown(verdicts: Sequence[Verdict]) -> str:
    """A table: a row per demand."""
    rows = [f"| {v.demand} | {v.measured} | {'yes' if v.met else 'no'} |" for v in verdicts]
    return "\n".join([f"| {DEFAULT} | measured | met |", "|---|---|---|", *rows]) + "\n"


def _goodput(lines: Sequence[Line], own: Line) -> Verdict:
    """Against the static budget with the most goodput, which need not be the fastest one."""
    here = [line for line in lines if line.trace == own.trace]
    static = max((line for line in here if line.static), key=lambda line: line.goodput)
    oracle = here[-1].goodput / static.goodput - 1.0
    gain = own.goodput / static.goodput - 1.0
    return Verdict(
        f"at least {LEAST_GAIN:.0%} more goodput than the best static budget from idle to "
        f"saturation ({own.trace})",
        f"{gain:+.1%} over {static.policy}; the oracle {oracle:+.1%}",
        gain >= LEAST_GAIN,
    )
