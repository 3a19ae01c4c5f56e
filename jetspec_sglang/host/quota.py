"""The number of CPUs that this process may use: its affinity and the quota of its container.

Contract: reads files below /sys/fs/cgroup and /proc; sets nothing but `OMP_NUM_THREADS` where
`fit_threads` is asked to. OpenMP's threads wait for each other, so with more threads than the quota
allows, every kernel becomes many times slower.
"""

from __future__ import annotations

import math
import os
from collections.abc import MutableMapping
from pathlib import Path

THREADS = "OMP_NUM_THREADS"
ROOT = Path("/sys/fs/cgroup")
GROUPS = Path("/proc/self/cgroup")


def quota(root: Path = ROOT, groups: Path = GROUPS) -> float | None:
    """CPUs of the tightest `cpu.max` (cgroup v2) or `cpu.cfs_quota_us` (v1); None without one."""
    limits = [limit for folder in _folders(root, groups) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def usable_cpus() -> int:
    """Threads that can run at once: affinity and quota, at least 1."""
    cores, limit = len(os.sched_getaffinity(0)), quota()
    return cores if limit is None else max(1, min(cores, math.floor(limit)))


def fit_threads(environment: MutableMapping[str, str]) -> int | None:
    """Set `OMP_NUM_THREADS` where a quota is below the affinity and nothing is set.

    Returns the number it set.
    """
    if environment.get(THREADS) or usable_cpus() >= len(os.sched_getaffinity(0)):
        return None
    environment[THREADS] = str(usable_cpus())
    return usable_cpus()


def _folders(root: Path, groups: Path) -> list[Path]:
    """The groups of this process from its own up to the root, of both versions."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        lines = []
    found = [root, root / "cpu"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        own = base / path.lstrip("/")
        found += [own, *(parent for parent in own.parents if base in parent.parents)]
    return found


def _limit(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            allowed, period = (folder / "cpu.max").read_text().split()
        else:
            allowed = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        if allowed in ("max", "-1"):
            return None
        return int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
