"""A long load that rises and falls, with faults. Then the checks: failures, text, KV memory,
resident memory.

Contract: `run` continues after an interruption: a finished load is not run again, its answers are
checked from its folder. I/O: processes, HTTP, the folder of the soak.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.client.load import flush_cache
from jetspec_sglang.client.supervise import end
from loadtests.experiment import controlled, faults, generator, lossless, memory
from loadtests.experiment.cells import ADAPTIVE, PLAIN, Policy
from loadtests.experiment.sweep import Sweep, drain, loads
from loadtests.figures import number
from loadtests.results import SUMMARY, read_records

RESULT = "soak.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """`sampled`: answers that are compared with plain decoding; `port`: the controller's."""

    seconds: float
    rate: float
    seed: int
    sampled: int
    port: int


def run(sweep: Sweep, plan: Plan, out: Path, options: Mapping[str, str]) -> dict[str, Any]:
    """The whole soak, or what is missing of it."""
    if not (out / "load" / SUMMARY).exists() or not (out / "after.json").exists():
        _load(sweep, plan, out, options)
    if not (out / RESULT).exists():
        _check(sweep, plan, out, int(options["max-tokens"]))
    result: dict[str, Any] = json.loads((out / RESULT).read_text())
    return result


def _load(sweep: Sweep, plan: Plan, out: Path, options: Mapping[str, str]) -> None:
    program = shutil.which("prometheus")
    if program is None:
        raise CommandError("prometheus is not installed: apt-get install prometheus")
    server = sweep.server(Policy(ADAPTIVE))
    for name in ("controller", "prometheus", "load", "load.part"):
        shutil.rmtree(out / name, ignore_errors=True)
    drain(server)
    flush_cache(server)
    before = loads(server.url)
    tiers = [int(one) for one in server.jetspec_states()[0]["tiers"]]
    prometheus = controlled.prometheus(program, server.url, plan.port + 1, out / "prometheus")
    controller = controlled.controller(
        server.url, plan.port, out / "controller",
        prometheus=f"http://127.0.0.1:{plan.port + 1}", policy=sweep.controller_policy,
    )  # fmt: skip
    planned = faults.plan(plan.seconds, plan.seed, tiers)
    server_pid = sweep.pid(Policy(ADAPTIVE))
    with ExitStack() as stack:
        stack.enter_context(prometheus)
        stack.enter_context(controller)
        roots = {
            "server": lambda: server_pid,
            "controller": lambda: controller.pid,
            "prometheus": lambda: prometheus.pid,
        }
        stack.enter_context(memory.Watch(roots, out / "memory.jsonl"))
        maker = faults.Faults(planned, controller, prometheus, plan.port, out / "controller")
        partial = out / "load.part"
        child = generator.launch(
            server.url, partial, {**options, "keep-text": "", "max-lag-ms": "1000", "label": "soak"}
        )
        try:
            maker.begin()
            child.wait()
        finally:
            maker.stop()
            end(child, signal.SIGTERM, 20.0)
        (out / "faults.json").write_text(json.dumps(maker.made, indent=1) + "\n")
        generator.finished(child.returncode, partial, out / "load")
    drain(server)
    flush_cache(server)
    after = {"before": before, "after": loads(server.url)}
    (out / "after.json").write_text(json.dumps(after, indent=1) + "\n")


def _check(sweep: Sweep, plan: Plan, out: Path, max_tokens: int) -> None:
    summary = json.loads((out / "load" / SUMMARY).read_text())
    kv = json.loads((out / "after.json").read_text())
    made = json.loads((out / "faults.json").read_text())
    chosen = lossless.sample(read_records(out / "load"), plan.sampled, plan.seed)
    found = lossless.differences(sweep.server(Policy(PLAIN)), chosen, max_tokens)
    leaked = kv["after"]["used_tokens"] - kv["before"]["used_tokens"]
    result = {
        "seconds": plan.seconds,
        "completed": summary["completed"],
        "aborted": summary["aborted"],
        "failed": summary["failed"],
        "failures_by_kind": summary["failures_by_kind"],
        "rejected_because": summary["rejected_because"],
        "faults": dict(Counter(one["kind"] for one in made if not one["error"])),
        "faults_not_made": [one for one in made if one["error"]],
        "compared": len(chosen),
        "compared_cut_off": sum(one.status == "aborted" for one in chosen),
        "differences": [asdict(one) for one in found],
        "kv_tokens_leaked": leaked,
        "memory": memory.slopes(memory.read(out / "memory.jsonl")),
        "passed": not (summary["failed"] or found or leaked or summary["rejected_because"]),
    }
    (out / RESULT).write_text(json.dumps(result, indent=1) + "\n")


def table(result: Mapping[str, Any]) -> list[list[str]]:
    """Resident memory: a row a process."""
    rows = [["process", "first MiB", "last MiB", "MiB an hour, last two thirds"]]
    for name, one in result["memory"].items():
        slope = one["slope_mib_per_hour"]
        rows.append([
            name, number(one["first_mib"]), number(one["last_mib"]),
            "too short" if slope is None else f"{slope:+.1f}",
        ])  # fmt: skip
    return rows


def note(result: Mapping[str, Any]) -> str:
    made = ", ".join(f"{count} {kind}" for kind, count in result["faults"].items())
    kinds = ", ".join(f"{kind} {n}" for kind, n in result["failures_by_kind"].items()) or "none"
    lines = [
        f"{result['seconds']:g} s: {result['completed']} requests answered, {result['aborted']} cut "
        f"off by the client, {result['failed']} failed ({kinds}).",
        f"Faults: {made}; {len(result['faults_not_made'])} could not be made.",
        f"{result['compared']} answers compared with plain decoding, {result['compared_cut_off']} of "
        f"them cut off: {len(result['differences'])} differ.",
        f"KV tokens still held after the cache was emptied: {result['kv_tokens_leaked']:g} more than "
        "before.",
        *(f"REJECTED: {one}" for one in result["rejected_because"]),
        "Passed." if result["passed"] else "NOT PASSED.",
    ]
    return "\n".join(lines)
