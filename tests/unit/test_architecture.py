"""The rooms of the code: who may import whom, without cycles, as docs/architecture.md draws it.

A room is a folder of `jetspec_sglang`, or a package beside it. The plain modules of `jetspec_sglang`
are the room `base`, apart from `plugin`. Imports inside functions and for type checks count too.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "jetspec_sglang": ROOT,
    "jetspec_controller": ROOT / "controller",
    "jetspec_simulator": ROOT / "controller" / "simulator",
    "loadtests": ROOT,
    "deploy": ROOT,
    "dashboards": ROOT,
}
# From the bottom up: each room and the rooms below it that it imports.
ROOMS = {
    "base": set(),
    "bridge": set(),
    "head": set(),
    "host": {"base", "bridge"},
    "tree": {"base", "host"},
    "verify": {"bridge", "host", "tree"},
    "device": {"bridge", "host", "tree", "verify"},
    "round": {"base", "bridge", "device", "head", "tree", "verify"},
    "hooks": {"base", "bridge", "head", "host", "round"},
    "plugin": {"base", "bridge", "hooks", "host"},
    "client": {"base"},
    "embedded": {"base"},
    "families": set(),
    "training": {"head"},
    "bench": {"base", "client", "host", "tree"},
    "evaluation": {"base", "bench", "head", "host", "training", "tree"},
    "loadtests": {"client", "evaluation"},
    "cli": {
        *("base", "bench", "bridge", "client", "embedded", "evaluation", "head", "host"),
        *("families", "loadtests", "training"),
    },
    "controller": set(),
    "simulator": {"controller"},
    "deploy": {"base", "cli", "client", "controller", "evaluation", "host"},
    "dashboards": {"base", "controller"},
}
DOCUMENT = (ROOT / "docs" / "architecture.md").read_text()


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in PACKAGES.items():
        for file in (folder / package).rglob("*.py"):
            name = ".".join(file.relative_to(folder).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return found


MODULES = modules()


def room(module: str) -> str:
    package, *rest = module.split(".")
    if package != "jetspec_sglang":
        return package.removeprefix("jetspec_")
    if rest and (rest[0] == "plugin" or MODULES[f"{package}.{rest[0]}"].name == "__init__.py"):
        return rest[0]
    return "base"


def imports(module: str, file: Path) -> Iterator[str]:
    """The modules of ours that a module imports, wherever the statement stands."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: 1 - node.level or None] if node.level else []
            source = ".".join([*parts, *filter(None, [node.module])])
            names = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name:
                yield name


IMPORTS = {name: {*imports(name, file)} - {name} for name, file in MODULES.items()}


def arrows() -> set[tuple[str, str]]:
    pairs = {(room(name), room(other)) for name, others in IMPORTS.items() for other in others}
    return {(one, other) for one, other in pairs if one != other}


def test_no_module_imports_itself_through_others():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


def test_every_room_is_in_the_table():
    assert {room(name) for name in MODULES} == set(ROOMS)


def test_no_room_may_import_upward():
    seen: set[str] = set()
    for name, allowed in ROOMS.items():
        assert allowed <= seen, f"{name}: {allowed - seen} stand above it"
        seen.add(name)


def test_rooms_import_what_the_table_says():
    assert arrows() == {(one, other) for one, others in ROOMS.items() for other in others}


def test_the_picture_shows_the_arrows():
    pictures = re.findall(r"```mermaid\n(.*?)```", DOCUMENT, re.S)
    drawn = set()
    for line in "\n".join(pictures).splitlines():
        if "-->" in line:
            left, right = (re.findall(r"\w+", side) for side in line.split("-->"))
            drawn |= {(one, other) for one in left for other in right}
    assert drawn == arrows()


@pytest.mark.parametrize("name", ROOMS)
def test_the_document_has_a_paragraph_for_each_room(name):
    [paragraph] = re.findall(rf"^\*\*`{name}`\*\* .+?(?=\n\n|\Z)", DOCUMENT, re.S | re.M)
    assert 15 <= len(paragraph.split()) <= 120


@pytest.mark.parametrize(
    "package", [name for name, file in MODULES.items() if file.name == "__init__.py"]
)
def test_every_package_says_its_contract(package):
    assert ast.get_docstring(ast.parse(MODULES[package].read_text()))


def test_files_that_the_documents_name_exist():
    folders = (
        "jetspec_sglang",
        "controller",
        "loadtests",
        "deploy",
        "dashboards",
        "tests",
        "tools",
    )
    files = {str(file) for folder in folders for file in (ROOT / folder).rglob("*.py")}
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for name in re.findall(r"`([\w./-]+\.py)`", document.read_text()):
            assert any(file.endswith(f"/{name}") for file in files), (document.name, name)
