"""The policies compared, and what the comparison must show, on shortened traces."""

from __future__ import annotations

import pytest
from jetspec_controller.core import PolicyConfig, Reason
from jetspec_controller.simulator.arrivals import ClosedTrace, swing
from jetspec_controller.simulator.cli import main
from jetspec_controller.simulator.curves import DEVICES
from jetspec_controller.simulator.policies import (
    START,
    AcceptEma,
    Governed,
    Oracle,
    Schedule,
    Static,
)
from jetspec_controller.simulator.report import Line, best_static, markdown, regret
from jetspec_controller.simulator.run import run
from jetspec_controller.simulator.scenarios import scenarios
from jetspec_controller.simulator.server import ServerSpec

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


def test_the_real_decide_follows_a_swing():
    """Night and peak: near the oracle, well above every static budget."""
    trace = swing("swing", 1, 32, 90.0, 3, idle_share=2 / 3)
    spec = ServerSpec()
    oracle = run(Oracle(DEVICE), DEVICE, trace, spec, seed=1)
    static = max(run(Static(b), DEVICE, trace, spec, seed=1).goodput for b in (32, 64, 128))
    model = run(governed(), DEVICE, trace, spec, seed=1)
    assert regret(model, oracle, closed=True) <= 0.05
    assert model.goodput >= 1.15 * static


@pytest.mark.parametrize("clients", [1, 8])
def test_on_a_steady_load_it_is_as_good_as_the_best_static_budget(clients):
    trace = ClosedTrace("steady", ((0.0, clients),), 90.0)
    spec = ServerSpec()
    static = max(run(Static(b), DEVICE, trace, spec, seed=1).goodput for b in DEVICE.tiers)
    assert run(governed(), DEVICE, trace, spec, seed=1).goodput >= 0.98 * static


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


def line(policy: str, lost: float) -> Line:
    return Line("t", policy, 100.0, 0.01, 0.02, 3.0, lost, lost)


def test_report_shows_the_best_static_budget_alone():
    lines = [line("static 16", 0.2), line("static 64", 0.1), line("model", 0.01)]
    assert best_static(lines, "t").policy == "static 64"
    table = markdown(lines)
    assert "best static 64" in table
    assert "static 16" not in table
    assert "| t | model | 100 | 10.00 | 20.0 | 3 | 1.0% | 1.0% |" in table


def test_scenarios_are_drawn_from_the_seed():
    assert scenarios(DEVICE, 1) == scenarios(DEVICE, 1) != scenarios(DEVICE, 2)


def test_command_prints_a_table(capsys):
    assert main(["--trace", "1 client", "--shorten", "0.05"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("| trace | policy |")
    assert "oracle" in out
    assert "1 client: oracle" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--trace", "nothing like it"], "names none of"), (["--shorten", "0"], "--shorten is 0.0")],
)
def test_command_mistakes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        main(arguments)
