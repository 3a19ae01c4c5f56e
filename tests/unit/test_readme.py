"""Commands in the documentation: every `bash` block parses and names only what exists."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from dashboards import preview
from deploy.stack import __main__ as stack
from jetspec_sglang import cli
from jetspec_sglang.cli.commands import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def blocks():
    return [(page, block) for page in PAGES for block in BLOCK.findall(page.read_text())]


def commands(program):
    """Argument lists of every call of `program` in the pages."""
    found = []
    for _, block in blocks():
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                words.pop(0)
            if words and words[0].rpartition("/")[2] == program:
                found.append(words[1:])
    return found


def sglang_fields():
    """Names of SGLang's server arguments, read from its source: importing it takes long."""
    root = Path(importlib.util.find_spec("sglang").origin).parent / "srt"
    text = "".join(
        path.read_text() for path in [root / "server_args.py", *root.glob("arg_groups/**/*.py")]
    )
    return set(re.findall(r"^ +([a-z_0-9]+): ", text, re.MULTILINE))


def assert_sglang_flags(words):
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    unknown = {flag for flag in flags if flag[2:].replace("-", "_") not in sglang_fields()}
    assert not unknown


def test_first_screen_has_the_two_commands():
    first = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert re.findall(r"^make (\w+)", first, re.MULTILINE) == ["serve", "test"]


@pytest.mark.parametrize(("page", "block"), blocks())
def test_block_is_valid_shell(page, block):
    result = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
    assert result.returncode == 0, f"{page}: {result.stderr}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    used = {word for words in commands("make") for word in words if re.fullmatch(r"[a-z-]+", word)}
    assert "serve" in used
    assert {word for word in used if not word.startswith("-")} <= targets


@pytest.mark.parametrize("words", commands("jetspec"), ids=" ".join)
def test_jetspec_commands_parse(words):
    assert words[0] in COMMANDS
    parser, _ = cli._parser(words)
    args, rest = parser.parse_known_args(words)
    if getattr(args, "pass_through", False):
        assert_sglang_flags(rest)
    else:
        assert rest == []


def assert_flags_of_target(target, words):
    if target == "preview":
        preview.parse(words)
    else:
        assert_sglang_flags(stack.parse(words).rest if target == "stack" else words)


def test_flags_handed_to_sglang_exist():
    for words in commands("make"):
        for word in words:
            if word.startswith("ARGS="):
                assert_flags_of_target(words[0], shlex.split(word.removeprefix("ARGS=")))
    for words in commands("python"):
        if words[:2] == ["-m", "sglang.launch_server"]:
            assert_sglang_flags(words[2:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_settings_table_names_variables_that_the_code_reads():
    code = "".join(path.read_text() for path in (ROOT / "jetspec_sglang").rglob("*.py"))
    names = re.findall(r"^\| `(JETSPEC_\w+)`", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(names) >= 4
    assert all(f'"{name}"' in code for name in names)


CURL = re.compile(r"curl [^`\n]*-d '[^`\n]*")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_bodies_say_that_they_are_json(page):
    """curl sends a form otherwise, which neither SGLang nor the controller reads."""
    text = page.read_text().replace("\\\n", " ")
    assert all("Content-Type: application/json" in call for call in CURL.findall(text))
