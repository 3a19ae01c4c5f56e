"""The command line as a whole: laziness, exit statuses, one-line errors."""

import resource
import subprocess
import sys

import pytest

from jetspec_sglang import cli
from jetspec_sglang.cli.commands import COMMANDS


def run(*arguments):
    command = [sys.executable, "-X", "importtime", "-c"]
    code = f"import sys; from jetspec_sglang.cli import main; sys.exit(main({list(arguments)!r}))"
    return subprocess.run([*command, code], capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments):
    result = run(*arguments)
    assert result.returncode == 0
    assert "examples:" in result.stdout
    imported = {line.split("|")[-1].strip() for line in result.stderr.splitlines() if "|" in line}
    assert not imported & {"torch", "sglang", "transformers", "matplotlib"}


def test_help_is_fast():
    """CPU seconds, which a busy machine does not lengthen as it does the wall clock's."""
    code = "from jetspec_sglang.cli import main; main(['-h'])"
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(times) < 0.5


def test_help_names_every_command(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert name in shown
        assert command.help in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["brew"],
        ["budget"],
        ["budget", "get", "--colour"],
        ["doctor", "--batch", "two"],
        ["generate"],
    ],
)
def test_wrong_command_line_exits_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_ctrl_c_exits_130(monkeypatch):
    from jetspec_sglang.cli import doctor

    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "run", interrupted)
    assert cli.main(["doctor"]) == 130
