"""The installer on made-up clones: what is keyed, stamped, locked and refused."""

import importlib.util
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "install.py"
SPEC = importlib.util.spec_from_file_location("install", SCRIPT)
install = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(install)

PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
[project]
name = "{name}"
dependencies = ["{name}-needs"]
[project.optional-dependencies]
dev = ["pytest"]
"""


@pytest.fixture
def clone(tmp_path):
    root = tmp_path / "clone"
    for folder in install.PROJECTS:
        (root / folder).mkdir(parents=True, exist_ok=True)
        name = "controller" if folder == "controller" else "engine"
        (root / folder / "pyproject.toml").write_text(PYPROJECT.format(name=name))
    (root / "constraints.txt").write_text("pytest==9\n")
    return root


@pytest.fixture
def pip(monkeypatch):
    """Records pip's calls; `pip.fail_at` makes the call with that word fail."""
    state = SimpleNamespace(calls=[], fail_at=None)

    def run(command):
        words = [str(word) for word in command]
        if "venv" in words:
            folder = Path(words[-1])
            install.site_packages(folder).mkdir(parents=True)
            (folder / "bin").mkdir()
            return
        state.calls.append(words)
        if state.fail_at in words:
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(install, "_run", run)
    monkeypatch.setattr(install, "missing_debian_packages", list)
    monkeypatch.setattr(install, "SHARED_BYTES", 0)
    return state


def test_requirements_hold_every_project_and_extra(clone):
    assert install.requirements(clone) == [
        "controller-needs",
        "engine-needs",
        "pytest",
        "setuptools>=77",
    ]


def test_key_changes_with_requirements_pins_and_python(monkeypatch):
    key = install.environment_key(["a"], "a==1")
    assert key == install.environment_key(["a"], "a==1")
    assert key != install.environment_key(["a", "b"], "a==1")
    assert key != install.environment_key(["a"], "a==2")
    monkeypatch.setattr(install.sys, "executable", "/elsewhere/python")
    assert key != install.environment_key(["a"], "a==1")


def test_second_install_runs_nothing(clone, tmp_path, pip):
    python = install.install(clone, tmp_path / "cache")
    assert python == clone / ".venv" / "bin" / "python"
    shared, thin = pip.calls
    assert "--constraint" in shared
    assert {"--no-deps", str(clone), str(clone / "controller")} <= set(thin)
    install.install(clone, tmp_path / "cache")
    assert len(pip.calls) == 2


def test_clones_share_the_dependencies_and_not_their_code(clone, tmp_path, pip):
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", clone, other], check=True)
    install.install(clone, tmp_path / "cache")
    install.install(other, tmp_path / "cache")
    assert len(list((tmp_path / "cache").glob("venv-*"))) == 1
    assert len(pip.calls) == 3
    pth = [install.site_packages(root / ".venv") / "shared.pth" for root in (clone, other)]
    assert pth[0].read_text() == pth[1].read_text()


@pytest.mark.parametrize("fail_at", ["--constraint", "--no-deps"])
def test_interrupted_install_is_made_again(clone, tmp_path, pip, fail_at):
    pip.fail_at = fail_at
    with pytest.raises(subprocess.CalledProcessError):
        install.install(clone, tmp_path / "cache")
    pip.fail_at = None
    before = len(pip.calls)
    install.install(clone, tmp_path / "cache")
    again = pip.calls[before:]
    assert any(fail_at in call for call in again)


def test_changed_entry_points_remake_the_thin_layer_only(clone, tmp_path, pip):
    install.install(clone, tmp_path / "cache")
    file = clone / "pyproject.toml"
    file.write_text(file.read_text() + '[project.scripts]\nx = "y:z"\n')
    install.install(clone, tmp_path / "cache")
    assert ["--constraint" in call for call in pip.calls] == [True, False, False]


def test_moved_clone_is_made_again(clone, tmp_path, pip):
    install.install(clone, tmp_path / "cache")
    moved = clone.rename(tmp_path / "moved")
    install.install(moved, tmp_path / "cache")
    assert str(moved) in pip.calls[-1]


def test_prune_keeps_what_this_clone_uses(clone, tmp_path, pip):
    cache = tmp_path / "cache"
    install.install(clone, cache)
    old = cache / "venv-old"
    old.mkdir()
    install.prune(cache, used=(clone / ".venv" / "complete").read_text())
    assert not old.exists()
    assert len(list(cache.glob("venv-*"))) == 1


def test_full_disk_is_refused_before_pip(clone, tmp_path, pip, monkeypatch):
    monkeypatch.setattr(install, "SHARED_BYTES", 1 << 60)
    with pytest.raises(install.InstallError, match="JETSPEC_CACHE"):
        install.install(clone, tmp_path / "cache")
    assert pip.calls == []


def test_missing_packages_without_rights_name_the_command(monkeypatch):
    monkeypatch.setattr(install.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(
        install.shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None
    )
    with pytest.raises(install.InstallError, match=r"as root, run: apt-get install .* g\+\+"):
        install.require_debian_packages(["g++"])


def test_missing_packages_off_debian_are_named(monkeypatch):
    monkeypatch.setattr(install.shutil, "which", lambda _: None)
    with pytest.raises(install.InstallError, match=r"g\+\+"):
        install.require_debian_packages(["g++"])


def test_root_installs_them(monkeypatch):
    ran = []
    monkeypatch.setattr(install, "_run", ran.append)
    monkeypatch.setattr(install.os, "geteuid", lambda: 0)
    monkeypatch.setattr(install.shutil, "which", lambda name: f"/usr/bin/{name}")
    install.require_debian_packages(["g++"])
    assert [command[:2] for command in ran] == [["apt-get", "update"], ["apt-get", "install"]]


def _hold(file, seconds, order):
    with install.locked(Path(file)):
        order.append("in")
        time.sleep(seconds)
        order.append("out")


def test_lock_lets_one_in_at_a_time(tmp_path):
    with multiprocessing.Manager() as manager:
        order = manager.list()
        fork = multiprocessing.get_context("fork")
        workers = [
            fork.Process(target=_hold, args=(str(tmp_path / "lock"), 0.2, order)) for _ in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert list(order) == ["in", "out"] * 3


def test_script_prints_one_line_for_an_old_python(monkeypatch, capsys):
    monkeypatch.setattr(install.sys, "version_info", (3, 10, 0))
    assert install.main() == 1
    error = capsys.readouterr().err
    assert "3.11 or newer" in error
    assert len(error.splitlines()) == 1


def test_script_uses_the_standard_library_only():
    names = sys.stdlib_module_names
    lines = [
        line.split()[1] for line in SCRIPT.read_text().splitlines() if line.startswith("import ")
    ]
    assert {name.split(".")[0] for name in lines} <= names


def test_packages_of_test_programs_are_named_once(monkeypatch):
    monkeypatch.setattr(install.shutil, "which", lambda program: None)
    missing = install.missing_test_packages()
    assert sorted(missing) == sorted(set(missing))
    assert {"prometheus", "prometheus-alertmanager"} <= set(missing)
    monkeypatch.setattr(install.shutil, "which", lambda program: f"/usr/bin/{program}")
    assert install.missing_test_packages() == []
