"""Make this clone's Python environment and print its interpreter: `python3 tools/install.py`.

With `--prune` it also removes the shared environments in the cache that this clone does not use;
with `--tests` it also installs the programs that some tests drive (Prometheus, Alertmanager,
Chromium), with `--full-tests` those of `make test-full` too (buildah).

Contract: afterwards `.venv/bin` holds python, jetspec, jetspec-controller and jetspec-simulate. Two
layers: the *shared* environment under the cache folder holds every dependency at the version pinned in
constraints.txt, and its name is a hash of what it was made from, so that clones that need the same
things use one copy; `.venv` in the clone is a few files that add the clone's own code on top.
Standard library only, for any CPython >= 3.11. The path goes to stdout, all else to stderr.
I/O: runs apt-get (only when a Debian package is missing) and pip; writes the cache and `.venv`.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (".", "controller", "controller/simulator")
"""Folders of the clone that hold a pyproject.toml, installed in this order."""

OLDEST_PYTHON = (3, 11)
SHARED_BYTES = 14 << 30
"""Disk that installing the shared environment takes at its peak: SGLang brings CUDA's libraries."""


class InstallError(Exception):
    """The environment cannot be made; the message says why and what to do."""


def main() -> int:
    try:
        if sys.version_info < OLDEST_PYTHON:
            raise InstallError(
                f"{sys.executable} is Python {platform.python_version()}, 3.11 or newer is needed;"
                " name another one with `make PYTHON=...`"
            )
        interpreter = install(ROOT, cache_dir())
        if sys.argv[1:] == ["--prune"]:
            prune(cache_dir(), used=(ROOT / ".venv" / "complete").read_text())
        if sys.argv[1:] in (["--tests"], ["--full-tests"]):
            require_debian_packages(missing_test_packages(full="--full-tests" in sys.argv))
        print(interpreter)
    except (InstallError, OSError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"install: `{' '.join(map(str, error.cmd))}` failed, see above", file=sys.stderr)
        return 1
    return 0


def cache_dir() -> Path:
    """The same folder as `jetspec_sglang.cache.cache_dir`, which cannot be imported yet."""
    return Path(os.environ.get("JETSPEC_CACHE") or "~/.cache/jetspec").expanduser().absolute()


def install(root: Path, cache: Path) -> Path:
    """Create missing layers. Returns the clone's interpreter."""
    wanted = requirements(root)
    constraints = root / "constraints.txt"
    shared = cache / f"venv-{environment_key(wanted, constraints.read_text())}"
    with locked(cache / "install.lock"):
        if not is_complete(shared, ""):
            require_debian_packages(missing_debian_packages())
            make_shared(shared, wanted, constraints)
        clone = root / ".venv"
        content = clone_stamp(root, shared)
        if not is_complete(clone, content):
            make_clone(root, clone, shared, content)
    return clone / "bin" / "python"


def requirements(root: Path) -> list[str]:
    """What the clone's projects need besides each other, extras and build tools included, sorted."""
    wanted: set[str] = set()
    own: set[str] = set()
    for folder in PROJECTS:
        pyproject = tomllib.loads((root / folder / "pyproject.toml").read_text())
        project = pyproject["project"]
        own.add(project["name"])
        wanted.update(pyproject["build-system"]["requires"], project.get("dependencies", []))
        wanted.update(*project.get("optional-dependencies", {}).values())
    return sorted(wanted - own)


def environment_key(wanted: list[str], constraints: str) -> str:
    """Twelve hex digits that change with the requirements, their versions and the Python."""
    build = [sys.implementation.cache_tag, platform.machine(), os.path.realpath(sys.executable)]
    text = "\n".join([*wanted, constraints, *build])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def clone_stamp(root: Path, shared: Path) -> str:
    """What `.venv` was made from; a moved clone or another shared environment changes it."""
    projects = [(root / folder / "pyproject.toml").read_text() for folder in PROJECTS]
    digest = hashlib.sha256("\n".join(projects).encode()).hexdigest()
    return f"{root}\n{shared}\n{digest}\n"


def missing_debian_packages() -> list[str]:
    """Debian packages without which the install, or the server later, would fail."""
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    missing = []
    if importlib.util.find_spec("ensurepip") is None:
        missing.append(f"{python}-venv")
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        missing.append(f"{python}-dev")
    if shutil.which("g++") is None:
        missing.append("g++")
    if shutil.which("lscpu") is None:  # SGLang asks it for the CPU's layout
        missing.append("util-linux")
    return missing


def missing_test_packages(full: bool = False) -> list[str]:
    """Debian packages of the programs that tests drive and that are not on PATH."""
    programs = {
        "prometheus": "prometheus",
        "promtool": "prometheus",
        "amtool": "prometheus-alertmanager",
        "chromium": "chromium",
        "chromedriver": "chromium-driver",
    }
    if full:
        programs |= {"buildah": "buildah", "debootstrap": "debootstrap"}
    missing = [package for program, package in programs.items() if shutil.which(program) is None]
    return list(dict.fromkeys(missing))


def require_debian_packages(missing: list[str]) -> None:
    """Install the packages with apt-get, as root or through sudo, or say how."""
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if shutil.which("apt-get") is None:
        raise InstallError(f"missing: {', '.join(missing)} (Debian's names); install them first")
    if os.geteuid() == 0:
        prefix = []
    elif shutil.which("sudo") and (sys.stdin.isatty() or _sudo_asks_nothing()):
        prefix = ["sudo"]
    else:
        raise InstallError(f"missing: {', '.join(missing)}; as root, run: {' '.join(command)}")
    _run([*prefix, "apt-get", "update", "-q"])
    _run([*prefix, *command])


def make_shared(folder: Path, wanted: list[str], constraints: Path) -> None:
    """A virtual environment with every dependency. An incomplete one is removed first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder.parent).free
    if free < SHARED_BYTES:
        raise InstallError(
            f"{free >> 30} GiB free under {folder.parent}, {SHARED_BYTES >> 30} GiB needed;"
            " name another folder with JETSPEC_CACHE"
        )
    print(f"install: making {folder} (minutes, about 11 GB)", file=sys.stderr)
    _run([sys.executable, "-m", "venv", folder])
    pip: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--constraint", constraints, *wanted])
    stamp(folder, "")


def make_clone(root: Path, folder: Path, shared: Path, content: str) -> None:
    """The clone's thin layer: the shared packages by reference, the clone's code editable."""
    shutil.rmtree(folder, ignore_errors=True)
    print(f"install: making {folder}", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--without-pip", folder])
    packages = site_packages(folder)
    line = f"import site; site.addsitedir({str(site_packages(shared))!r})\n"
    (packages / "shared.pth").write_text(line)
    # FlashInfer compiles its kernels with the ninja it finds on PATH.
    (folder / "bin" / "ninja").symlink_to(shared / "bin" / "ninja")
    pip: list[str | Path] = [shared / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    editable = [part for project in PROJECTS for part in ("--editable", root / project)]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    _run([*pip, "--python", folder / "bin" / "python", "install", "--quiet", *offline, *editable])
    locust = folder / "bin" / "locust"
    locust.write_text(
        f"#!{folder / 'bin' / 'python'}\nfrom loadtests.__main__ import main\n\nmain()\n"
    )
    locust.chmod(0o755)
    stamp(folder, content)


def prune(cache: Path, used: str) -> None:
    """Remove the shared environments that `used`, a clone's stamp, does not name."""
    with locked(cache / "install.lock"):
        for folder in cache.glob("venv-*"):
            if str(folder) not in used.splitlines():
                print(f"install: removing {folder}", file=sys.stderr)
                shutil.rmtree(folder)


def site_packages(venv: Path) -> Path:
    """The package folder of a virtual environment made by this interpreter."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(venv)}))


def stamp(venv: Path, content: str) -> None:
    """Mark a virtual environment as complete: the last thing written into it."""
    (venv / "complete").write_text(content)


def is_complete(venv: Path, content: str) -> bool:
    """Whether `stamp` was written with this content."""
    file = venv / "complete"
    return file.is_file() and file.read_text() == content


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Take an exclusive lock. Print a line if another install has it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("install: waiting for another install", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sudo_asks_nothing() -> bool:
    return subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, stdout=sys.stderr, check=True)


if __name__ == "__main__":
    sys.exit(main())
