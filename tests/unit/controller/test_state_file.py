"""What survives: a restart, a kill, a corrupt file; and what a full disk must not half-do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jetspec_controller.core import BudgetReadback
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.state_file import Pin, StateFile, StateUnavailableError

PIN = Pin("a:1", 64, "ops", "night", 100.0, 1000.0)
LAUNCH = BudgetReadback(64, (1, 16, 64), 64, ((1, 64), (8, 16)))


def opened(path: Path) -> StateFile:
    return StateFile(path, ControllerMetrics())


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.sqlite"
    state = opened(path)
    state.set_pin(PIN)
    state.set_pin(Pin("b:1", 16, "ops", "", 100.0, 1000.0))
    assert state.remove_pin("b:1") is not None
    assert state.remove_pin("b:1") is None
    state.set_paused(True)
    state.remember_launch("a:1", LAUNCH)
    state.close()
    again = opened(path)
    assert again.pins == {"a:1": PIN}
    assert again.paused
    assert again.launch == {"a:1": LAUNCH}
    again.forget_launch("a:1")
    again.set_paused(False)
    again.close()
    assert opened(path).launch == {}
    assert not opened(path).paused


def test_pins_expire_once(tmp_path: Path) -> None:
    state = opened(tmp_path / "s")
    state.set_pin(PIN)
    assert list(state.expire_pins(999.9)) == []
    assert list(state.expire_pins(1000.0)) == [PIN]
    assert list(state.expire_pins(1000.0)) == []
    state.close()
    assert opened(tmp_path / "s").pins == {}


def test_a_kill_loses_nothing_that_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    program = f"""
import os
from pathlib import Path
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.state_file import Pin, StateFile
state = StateFile(Path({str(path)!r}), ControllerMetrics())
for number in range(1000):
    state.set_pin(Pin("a:1", number + 1, "ops", "", 0.0, 1e12))
    print(number + 1, flush=True)
    if number == 20:
        os.kill(os.getpid(), 9)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == -9
    assert opened(path).pins["a:1"].budget == int(run.stdout.split()[-1])


def test_corrupt_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    path.write_bytes(b"this is no database" * 100)
    state = opened(path)
    state.set_pin(PIN)
    assert len(list(tmp_path.glob("state.sqlite.corrupt-*"))) == 1
    state.close()
    assert opened(path).pins == {"a:1": PIN}


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO launch VALUES ('a:1', 'no JSON')", "ALTER TABLE pins ADD COLUMN more TEXT"],
)
def test_a_file_of_another_make_is_set_aside(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "state.sqlite"
    state = opened(path)
    if "pins" in statement:
        state.set_pin(PIN)
    state._connection.execute(statement)
    state._connection.commit()
    state.close()
    assert opened(path).pins == {}
    assert len(list(tmp_path.glob("state.sqlite.corrupt-*"))) == 1


def test_a_place_that_cannot_be_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "state.sqlite"):
        with pytest.raises(OSError, match=str(tmp_path)):
            opened(path)


def test_full_disk_changes_nothing(tmp_path: Path) -> None:
    metrics = ControllerMetrics()
    state = StateFile(tmp_path / "s", metrics)
    state.set_pin(PIN)
    (pages,) = state._connection.execute("PRAGMA page_count").fetchone()
    state._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StateUnavailableError, match="full"):
        state.set_pin(Pin("a:1", 16, "ops", "x" * 50_000, 0.0, 1.0))
    assert state.pins == {"a:1": PIN}
    assert metrics.registry.get_sample_value("jetspec_controller_state_errors_total") == 1
    state._connection.execute("PRAGMA query_only=1")
    assert list(state.expire_pins(2000.0)) == [PIN], "an expired pin ends whatever the disk does"
