"""Images built and run without a container engine: Debian's buildah with chroot isolation.

Contract: everything lies in one folder; `remove` leaves nothing behind. Needs root. The base image
is made with debootstrap from the mirror and the package index that this machine is set up with;
neither they nor any credential gets into an image. I/O: network through debootstrap and pip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BASE = "localhost/jetspec-test-base:bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs")
FIRST_MIRROR = ("Created-By: Packages", "Component: main", "Codename: bookworm")
INDEX_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "timeout")


class Buildah:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = ["--root", str(folder / "store"), "--runroot", str(folder / "run")]
        self.command = ["buildah", *store, "--storage-driver", "vfs"]

    def __call__(self, *words: str, seconds: float = 900) -> str:
        """One command's output; an AssertionError with what it said where it fails."""
        result = subprocess.run(
            [*self.command, *words], capture_output=True, text=True, timeout=seconds
        )
        assert result.returncode == 0, (
            f"buildah {words[0]}: {result.stdout[-3000:]}{result.stderr[-3000:]}"
        )
        return result.stdout.strip()

    def make_base(self) -> None:
        """A small Debian with Python, in the place of the Dockerfiles' own base."""
        root = self.folder / "base"
        mirror = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", *FIRST_MIRROR],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()[0]
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root, mirror],
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stdout[-3000:]
        container = self("from", "scratch")
        self("copy", "--quiet", container, str(root), "/")
        self("commit", "--quiet", container, BASE)
        self("rm", container)
        shutil.rmtree(root)

    def build(self, dockerfile: Path, context: Path, tag: str) -> None:
        """The image of a Dockerfile on our base."""
        pip = self.folder / "pip.conf"
        pip.write_text(pip_configuration())
        self(
            *("bud", "--format", "docker", "--isolation", "chroot", "--build-arg", f"BASE={BASE}"),
            *("--volume", f"{CERTIFICATES}:/run/certificates:ro"),
            *("--secret", f"id=pip,src={pip}"),
            *("--file", str(dockerfile), "--tag", tag, str(context)),
        )

    def configuration(self, image: str) -> dict[str, Any]:
        """What the image says about itself: Entrypoint, Cmd, User, Healthcheck …"""
        return json.loads(self("inspect", "--type", "image", image))["Docker"]["config"]

    def run(self, container: str, command: Sequence[str], *options: str) -> list[str]:
        """The command line that runs something in a container, on this machine's network."""
        return [*self.command, "run", "--isolation", "chroot", *options, container, "--", *command]

    def remove(self) -> None:
        subprocess.run([*self.command, "rm", "--all"], capture_output=True)
        subprocess.run([*self.command, "rmi", "--all", "--force"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def pip_configuration() -> str:
    """This machine's package index, without folders that a build cannot see."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    lines = (line.partition("=") for line in listed.stdout.splitlines())
    found = {name.rpartition(".")[2]: value.strip("'\"") for name, _, value in lines}
    chosen = {name: found[name] for name in INDEX_SETTINGS if name in found}
    chosen = {name: value for name, value in chosen.items() if "file:" not in value}
    chosen["cert"] = "/run/certificates/ca-certificates.crt"
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in chosen.items())


def missing() -> str | None:
    """Why nothing can be built here, or None."""
    if os.geteuid() != 0:
        return "debootstrap and chroot need root"
    absent = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    return f"apt-get install {' '.join(absent)}" if absent else None
