"""The checks of `jetspec doctor` on the machine: versions, plugin, platform, compiler, ports.

Contract: each check returns a `Check` and never raises. I/O: reads package metadata and
/proc/cpuinfo, imports torch, may compile the native library, opens a port for an instant.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jetspec_sglang.client.errors import CommandError
from jetspec_sglang.host.dtype import default_dtype

if TYPE_CHECKING:
    from jetspec_sglang.head.finding import Finding

Status = Literal["ok", "warn", "fail"]
ENTRY_POINTS = {"sglang.srt.plugins": "jetspec", "sglang.srt.platforms": "jetspec_host"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's table; `remedy` says what to do unless all is well.

    findings: the same in parts, where there are several.
    """

    name: str
    status: Status
    detail: str
    remedy: str = ""
    findings: tuple["Finding", ...] = ()


def guarded(name: str, check: Callable[[], Check]) -> Check:
    """The check's answer, or a failure with the error it raised."""
    try:
        return check()
    except Exception as error:
        # A doctor that dies of what it diagnoses helps nobody.
        return Check(name, "fail", f"{type(error).__name__}: {error}", "report this as a bug")


def check_python() -> Check:
    return Check("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def check_sglang() -> Check:
    from jetspec_sglang.bridge import CHECKED_VERSION

    try:
        found = version("sglang")
    except PackageNotFoundError:
        found = "not installed"
    if found != CHECKED_VERSION:
        return Check("sglang", "fail", found, f"pip install sglang=={CHECKED_VERSION}")
    return Check("sglang", "ok", found)


def check_torch() -> Check:
    import torch

    detail = f"{torch.__version__}, {torch.get_num_threads()} threads"
    if torch.cuda.is_available():
        detail += f", {torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    return Check("torch", "ok", detail)


def check_plugin() -> Check:
    """SGLang finds the plugin by entry points. It can be told to leave out plugins."""
    for group, name in ENTRY_POINTS.items():
        found = [point for point in entry_points(group=group) if point.name == name]
        if not found:
            return Check(
                "plugin", "fail", f"no entry point {name} in {group}", "pip install jetspec-sglang"
            )
        found[0].load()
    chosen = os.environ.get("SGLANG_PLUGINS")
    if chosen and "jetspec" not in [name.strip() for name in chosen.split(",")]:
        return Check("plugin", "fail", f"SGLANG_PLUGINS={chosen}", "add jetspec to SGLANG_PLUGINS")
    return Check("plugin", "ok", "both entry points load")


def check_platform() -> Check:
    from jetspec_sglang.host.activation import HOST_PLATFORM, activate, has_accelerator

    try:
        host = activate() == HOST_PLATFORM
    except ValueError as error:
        return Check("platform", "fail", str(error), "unset JETSPEC_PLATFORM or correct it")
    selected = os.environ.get("SGLANG_PLATFORM")
    if host and selected not in (None, "", "jetspec_host"):
        return Check(
            "platform",
            "fail",
            f"SGLANG_PLATFORM={selected} disables the host platform",
            "unset SGLANG_PLATFORM",
        )
    others = [
        p.name for p in entry_points(group="sglang.srt.platforms") if p.name != "jetspec_host"
    ]
    if host and others and not selected:
        return Check(
            "platform",
            "warn",
            f"host; also installed: {', '.join(others)}",
            "if SGLang refuses to choose: SGLANG_PLATFORM=jetspec_host",
        )
    if host:
        return Check("platform", "ok", "host (CPU)")
    if has_accelerator():
        return Check("platform", "ok", "SGLang's own for this accelerator")
    return Check(
        "platform", "fail", "JETSPEC_PLATFORM=off, no accelerator", "unset JETSPEC_PLATFORM"
    )


def check_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Check:
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    useful = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    if not {"avx2", "fma"} <= set(useful):
        return Check(
            "cpu",
            "fail",
            f"{' '.join(useful) or 'no AVX2'}",
            "the host platform needs AVX2 and FMA",
        )
    # SGLang asks lscpu for the layout, which in turn needs /sys.
    if subprocess.run(["lscpu", "-p=CPU,Core,Socket,Node"], capture_output=True).returncode != 0:
        return Check("cpu", "fail", "lscpu fails", "mount /sys in this container")
    served = f"the host platform serves in {default_dtype(cpuinfo)} by default"
    return Check("cpu", "ok", f"{os.cpu_count()} cores, {' '.join(useful)}; {served}")


def check_quota() -> Check:
    """Whether OpenMP's threads fit what the container may use."""
    from jetspec_sglang.host.quota import THREADS, quota, usable_cpus

    limit, cores = quota(), len(os.sched_getaffinity(0))
    if limit is None:
        return Check("cpu quota", "ok", f"none: {cores} CPUs")
    usable = usable_cpus()
    detail = f"{limit:g} of {cores} CPUs"
    asked = os.environ.get(THREADS)
    if asked is not None and asked.isdigit() and int(asked) > usable:
        detail += f", but {THREADS}={asked}: threads would wait for each other"
        return Check("cpu quota", "warn", detail, f"set {THREADS}={usable}, or unset it")
    threads = asked or (usable if usable < cores else cores)
    return Check("cpu quota", "ok", f"{detail}: `jetspec serve` starts {threads} threads")


def check_load() -> Check:
    """Whether other processes hold cores that the host platform's threads would wait for."""
    from jetspec_sglang.host.quota import usable_cpus

    cores, busy = usable_cpus(), os.getloadavg()[0]
    detail = f"{busy:.1f} of {cores} cores busy in the last minute"
    if busy <= cores / 2 or os.environ.get("OMP_NUM_THREADS") == "1":
        return Check("load", "ok", detail)
    return Check(
        "load",
        "warn",
        f"{detail}: rounds become slower; in float16 many times slower",
        "free the cores, or set OMP_NUM_THREADS=1 for float16",
    )


def check_native() -> Check:
    from jetspec_sglang.host.kernels import load
    from jetspec_sglang.host.kernels.build import BuildError, library_path

    try:
        load()
    except BuildError as error:
        lines = str(error).splitlines()
        return Check("native library", "fail", lines[0], "apt-get install g++")
    return Check("native library", "ok", str(library_path()))


def check_kernel_tools() -> Check:
    """FlashInfer compiles kernels at first use on CUDA."""
    missing = [tool for tool in ("ninja", "nvcc") if not _find_tool(tool)]
    if missing:
        return Check(
            "kernel tools", "warn", f"not on PATH: {', '.join(missing)}", "put them on PATH"
        )
    return Check("kernel tools", "ok", "ninja, nvcc")


def check_controller() -> Check:
    if (Path(sys.executable).parent / "jetspec-controller").exists():
        return Check("controller", "ok", version("jetspec-controller"))
    return Check(
        "controller",
        "warn",
        "jetspec-controller is not installed beside this interpreter",
        "pip install jetspec-controller, or serve with --no-controller",
    )


def check_settings(device: str, max_budget: int) -> Check:
    """JETSPEC_SETTINGS against a launch maximum of `max_budget`."""
    from jetspec_sglang.budget import TreeBudget
    from jetspec_sglang.settings import ENVIRONMENT_VARIABLE, Settings

    try:
        state = TreeBudget.from_settings(Settings.from_environment(), device, max_budget)
    except ValueError as error:
        return Check("settings", "fail", str(error), f"correct {ENVIRONMENT_VARIABLE} or unset it")
    given = "as set" if os.environ.get(ENVIRONMENT_VARIABLE, "").strip() else "defaults"
    return Check("settings", "ok", f"{given}: B {state.plan.uniform} of {max_budget} at the start")


def check_port(port: int, flag: str) -> Check:
    from jetspec_sglang.cli.ports import require_free

    try:
        require_free("127.0.0.1", port, flag)
    except CommandError as error:
        return Check(f"port {port}", "warn", str(error), f"stop what listens there, or use {flag}")
    return Check(f"port {port}", "ok", "free")


def _find_tool(name: str) -> str | None:
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
