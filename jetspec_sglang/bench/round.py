"""The time of a round by part, from the server's own counters and the client's clock.

Contract: `breakdown` is pure; `measure` talks to the server. The remaining wall time is what the
counters do not include: the first rounds after a prefill, HTTP, and the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jetspec_sglang.client.load import flush_cache, read_counters, run_load, set_budget, warm_up
from jetspec_sglang.client.server import Server
from jetspec_sglang.metrics import PHASES

HOLDS = {
    "scheduler": "between two rounds: reservation, results, output, metrics, requests",
    "draft": "slots of the window, the head's forward, its scores, top-W (GEMMs)",
    "tree": "building the trees, child links for grammars",
    "verify": "the target's forward, LM head included (GEMMs)",
    "commit": "argmax or sampling, accept walk, logprobs, KV moves, and the head's context (fc and "
    "K/V projections: small GEMMs, counted here as none)",
    "rest": "the wall time left: the first rounds after a prefill, HTTP, the client",
}
GEMM_PHASES = ("draft", "verify")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Mean seconds of a round by part, the parts of `HOLDS`."""

    seconds: dict[str, float]
    rounds: int
    tau: float

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def outside_gemms(self) -> float:
        """Share of the round outside draft and verify; commit's GEMMs count as outside."""
        inside = sum(self.seconds[phase] for phase in GEMM_PHASES)
        return 1.0 - inside / self.total


def breakdown(
    phases: dict[str, float], decode_seconds: float, rounds: int, tau: float
) -> Breakdown:
    """`phases`: total seconds by phase; `decode_seconds`: wall time of the same `rounds`."""
    if rounds <= 0:
        raise ValueError("the server ran no round at this budget")
    seconds = {phase: phases[phase] / rounds for phase in PHASES}
    seconds["rest"] = max(decode_seconds / rounds - sum(seconds.values()), 0.0)
    return Breakdown(seconds, rounds, tau)


def measure(
    server: Server, prompts: Sequence[str], budget: int, batch: int, max_tokens: int
) -> Breakdown:
    """Break down the rounds of one load. Prefill is measured separately, on the same prompts with
    an empty cache, and subtracted from the wall time."""
    set_budget(server, budget)
    warm_up(server, prompts, batch)
    prefill = run_load(server, prompts, batch, 1)
    flush_cache(server)
    before = read_counters(server)
    flush_cache(server)
    load = run_load(server, prompts, batch, max_tokens)
    delta = read_counters(server) - before
    # The reading itself makes one round more than the load; as a mean it does not matter.
    rounds = int(delta.rounds(budget))
    decode_seconds = (load.seconds - prefill.seconds) * rounds / max(rounds - 1, 1)
    return breakdown(delta.phase_seconds(budget), decode_seconds, rounds, load.tau)


def table(result: Breakdown) -> list[list[str]]:
    """Rows for `report.markdown`."""
    rows = [["part", "ms per round", "share", "holds"]]
    for part, seconds in result.seconds.items():
        rows.append([part, f"{1e3 * seconds:.2f}", f"{seconds / result.total:.1%}", HOLDS[part]])
    rows.append(["round", f"{1e3 * result.total:.2f}", "100.0%", ""])
    return rows
