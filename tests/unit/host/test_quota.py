"""The CPU quota of a container, in both versions of control groups."""

import pytest

from jetspec_sglang.host import quota as module
from jetspec_sglang.host.quota import fit_threads, quota, usable_cpus


def group(root, path, **files):
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cgroup"


def found(root, lines):
    groups = root.parent / "groups"
    groups.write_text(lines)
    return quota(root, groups)


def test_version_2_of_a_container(root):
    group(root, ".", cpu__max="150000 100000\n")
    assert found(root, "0::/\n") == 1.5


def test_the_tightest_of_nested_groups_counts(root):
    group(root, "kubepods", cpu__max="400000 100000\n")
    group(root, "kubepods/pod/it", cpu__max="max 100000\n")
    group(root, "kubepods/pod", cpu__max="200000 100000\n")
    assert found(root, "0::/kubepods/pod/it\n") == 2


def test_version_1(root):
    group(root, "cpu/docker/it", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    assert found(root, "4:cpu,cpuacct:/docker/it\n2:memory:/docker/it\n") == 0.5


@pytest.mark.parametrize("text", ["max 100000", "-1 100000", "", "x y", "100 0"])
def test_no_quota(root, text):
    group(root, ".", cpu__max=text)
    assert found(root, "0::/\n") is None
    assert quota(root / "nowhere", root / "nothing") is None


@pytest.mark.parametrize(
    ("limit", "cores", "threads"),
    [(1.5, 8, 1), (0.25, 8, 1), (3.0, 8, 3), (16.0, 8, None), (None, 8, None)],
)
def test_threads_fit_the_quota(limit, cores, threads, monkeypatch):
    monkeypatch.setattr(module, "quota", lambda: limit)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(cores)))
    environment = {}
    assert fit_threads(environment) == threads
    assert environment.get("OMP_NUM_THREADS") == (None if threads is None else str(threads))
    assert usable_cpus() == (threads or cores)
    chosen = {"OMP_NUM_THREADS": "2"}
    assert fit_threads(chosen) is None
    assert chosen == {"OMP_NUM_THREADS": "2"}
