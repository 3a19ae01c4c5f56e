"""The policies compared, and what the comparison must show, on shortened traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from jetspec_controller.core import Governor, PolicyConfig, Reason
from jetspec_simulator import demands
from jetspec_simulator.arrivals import ClosedTrace, Trace, swing
from jetspec_simulator.cli import main
from jetspec_simulator.curves import DEVICES
from jetspec_simulator.policies import (
    DEFAULT,
    START,
    AcceptEma,
    Governed,
    Oracle,
    Schedule,
    Static,
)
from jetspec_simulator.report import Line, best_static, compare, markdown
from jetspec_simulator.run import run
from jetspec_simulator.scenarios import IDLE_TO_SATURATION, INTERACTIVE, scenarios
from jetspec_simulator.server import ServerSpec

DEVICE = DEVICES["table11"]


def governed(**changes) -> Governed:
    return Governed("model", PolicyConfig(**changes), START)


def test_schedule_keeps_rows_in_bounds_and_never_plain():
    schedule = Schedule(DEVICE, rows=256)
    assert [schedule.budget(n) for n in (1, 2, 4, 8, 16, 64)] == [128, 128, 64, 32, 16, 16]


def test_accept_ema_rises_when_all_is_accepted_and_falls_when_nothing_is():
    ema = AcceptEma(DEVICE)
    for _ in range(60):
        ema.after_round(1, 14.9)
    assert ema.budget(1) == 128
    for _ in range(60):
        ema.after_round(1, 0.1)
    assert ema.budget(1) == 16
    assert ema.budget(40) in DEVICE.tiers[:2]


def test_oracle_knows_the_surface():
    oracle = Oracle(DEVICE)
    assert [oracle.budget(n) for n in (1, 8, 16)] == [128, 64, 32]


def short(*wanted: str, shorten: float = 0.3) -> Callable[[int], Mapping[str, Trace]]:
    def traces(seed: int) -> Mapping[str, Trace]:
        made = scenarios(DEVICE, seed, shorten=shorten)
        return {name: made[name] for name in wanted}

    return traces


def test_the_three_demands_hold_for_the_governor_as_it_ships():
    changing = short(IDLE_TO_SATURATION, "bursts, 0.4 load")
    steady = short("8 clients", shorten=0.1)
    lines = [
        line
        for traces in (changing, steady)
        for line in compare(DEVICE, traces, PolicyConfig(), [1], INTERACTIVE)
    ]
    verdicts = demands.judge(lines)
    assert len(verdicts) == 3
    assert [v for v in verdicts if not v.met] == []


def test_a_broken_governor_fails_every_demand():
    """One that keeps the budget that is best for an idle server."""
    stuck = PolicyConfig(governor=Governor.PINNED, pinned_budget=128)
    traces = short(IDLE_TO_SATURATION, shorten=0.15)
    verdicts = demands.judge(compare(DEVICE, traces, stuck, [1], INTERACTIVE))
    assert [v for v in verdicts if v.met] == []


@pytest.mark.parametrize("clients", [1, 8])
def test_on_a_steady_load_it_is_as_good_as_the_best_static_budget(clients):
    trace = ClosedTrace("steady", ((0.0, clients),), 90.0)
    spec = ServerSpec()
    static = max(run(Static(b), DEVICE, trace, spec, seed=1).rate for b in DEVICE.tiers)
    assert run(governed(), DEVICE, trace, spec, seed=1).rate >= 0.98 * static


def test_decisions_of_a_run_explain_themselves():
    seen = []
    trace = swing("swing", 1, 16, 40.0, 1)
    run(
        governed(publish_table=False),
        DEVICE,
        trace,
        ServerSpec(),
        seed=1,
        on_tick=lambda decision, server: seen.append(decision),
    )
    assert len(seen) == 20
    moved = [d for d in seen if d.applies]
    assert {d.reason for d in moved} <= {
        Reason.FASTER_DOWN,
        Reason.FASTER_UP,
        Reason.PROBE,
        Reason.PROBE_BACK,
    }
    assert all(d.explanation.candidates for d in moved)


def line(policy: str, lost: float, goodput: float = 90.0) -> Line:
    return Line("t", policy, True, 100.0 * (1 - lost), goodput, 0.01, 0.02, 3.0, lost, lost)


def test_report_shows_the_best_static_budget_alone():
    lines = [line("static 16", 0.2), line("static 64", 0.1), line("model", 0.01)]
    assert best_static(lines, "t").policy == "static 64"
    table = markdown(lines)
    assert "best static 64" in table
    assert "static 16" not in table
    assert "| t | model | 99 | 90 | 10.00 | 20.0 | 3 | 1.0% | 1.0% |" in table


def test_demands_name_the_trace_and_compare_goodput_with_the_static_budget_that_has_most():
    lines = [
        replace(made, trace=IDLE_TO_SATURATION)
        for made in (
            line("static 16", 0.2, goodput=80.0),
            line("static 64", 0.1, goodput=60.0),
            line(DEFAULT, 0.06, goodput=94.0),
            line("oracle", 0.0, goodput=96.0),
        )
    ]
    regret, behind, gain = demands.judge(lines)
    assert (regret.met, behind.met, gain.met) == (False, True, True)
    assert regret.measured == f"worst 6.0% ({IDLE_TO_SATURATION})"
    assert gain.measured == "+17.5% over static 16; the oracle +20.0%"
    assert demands.markdown([regret]).splitlines()[-1].endswith("| no |")


def test_scenarios_are_drawn_from_the_seed():
    assert scenarios(DEVICE, 1) == scenarios(DEVICE, 1) != scenarios(DEVICE, 2)


def test_command_prints_its_tables_and_writes_them(capsys, tmp_path: Path):
    document = tmp_path / "b.md"
    markers = "<!-- bench:policies-table11 -->\n", "<!-- /bench:policies-table11 -->"
    document.write_text(f"before\n{markers[0]}old\n{markers[1]}\nafter\n")
    flags = ["--trace", "1 client", "--shorten", "0.05", "--write", str(document)]
    assert main(flags) == 0
    out, err = capsys.readouterr()
    assert "| trace | policy |" in out
    assert "oracle" in out
    assert "1 client: oracle" in err
    assert document.read_text() == f"before\n{markers[0]}{out}{markers[1]}\nafter\n"
    document.write_text("no markers")
    assert main(flags) == 2
    assert "must hold" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--trace", "nothing like it"], "names none of"), (["--shorten", "0"], "--shorten is 0.0")],
)
def test_command_mistakes_are_named(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
