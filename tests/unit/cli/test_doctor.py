"""`jetspec doctor`: each check's verdict, the memory sum, the table and the exit status."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from jetspec_sglang import cli, embedded
from jetspec_sglang.cli import checks, model_checks
from jetspec_sglang.cli.checks import Check
from jetspec_sglang.cli.memory import Demand, estimate
from jetspec_sglang.head.checkpoint import expected_tensors
from jetspec_sglang.head.config import HeadConfig
from jetspec_sglang.host import activation, quota
from jetspec_sglang.host.dtype import default_dtype
from jetspec_sglang.host.kernels import build

TARGET = {
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "vocab_size": 100,
}
HEAD = HeadConfig(
    block_size=8,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=100,
    num_target_layers=6,
    target_hidden_size=32,
    target_layer_ids=(1, 4),
    mask_token_id=99,
    causal=True,
)


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TARGET))
    save_file({"a": torch.zeros(10, 32), "b": torch.zeros(5)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def head(tmp_path):
    folder = tmp_path / "head"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HEAD.to_dict()))
    tensors = {name: torch.zeros(shape) for name, shape in expected_tensors(HEAD).items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_memory_is_the_sum_written_out():
    load = Demand(batch=3, context=100, budget=16, element_bytes=2, packed=True)
    parts = estimate(TARGET, 1000, HEAD, load)
    head_parameters = 32 * 32 * 2 + 32 * 16 * 2 + 2 * 8 + 2 * 32 + 3 * 32 * 48 + 64 * 32 + 2 * 32
    assert parts.weights == 2 * 2 * (1000 + head_parameters)
    assert parts.target_kv == 3 * 116 * 2 * 6 * 2 * 8 * 2
    assert parts.head_kv == 3 * 116 * 2 * 1 * 2 * 8 * 2
    assert parts.logits == 3 * 16 * 100 * 4
    assert parts.taps == 3 * 16 * 2 * 32 * 2
    assert parts.total == sum(
        (parts.weights, parts.target_kv, parts.head_kv, parts.logits, parts.taps)
    )


def test_memory_without_a_head():
    parts = estimate(TARGET, 1000, None, Demand(1, 10, 1, 2, packed=False))
    assert (parts.weights, parts.head_kv, parts.taps) == (2000, 0, 0)


def test_parameters_are_counted_from_headers(target):
    assert model_checks.count_parameters(target) == 325


@pytest.mark.parametrize(("free", "status"), [(1 << 50, "ok"), (1 << 20, "warn"), (1, "fail")])
def test_memory_verdict(target, free, status):
    load = Demand(batch=1, context=10, budget=1, element_bytes=2, packed=False)
    assert model_checks.check_memory(target, HEAD, load, free).status == status


def test_head_that_fits(target, head):
    check, config = model_checks.check_head(str(head), target)
    assert check.status == "ok"
    assert "block 8, causal, taps 1,4" in check.detail
    assert config.target_layer_ids == HEAD.target_layer_ids


def test_head_of_another_target(target, head):
    (target / "config.json").write_text(json.dumps({**TARGET, "hidden_size": 64}))
    check, config = model_checks.check_head(str(head), target)
    assert check.status == "fail"
    assert "hidden_size" in check.detail
    assert config is None


def test_what_is_wrong_with_a_head_is_told_in_parts(target, head, sound, capsys):
    tensors = {name: torch.zeros(shape) for name, shape in expected_tensors(HEAD).items()}
    tensors |= {"embed_tokens.weight": torch.zeros(100, 32)}
    tensors["fc.weight"][0, 0] = float("nan")
    save_file(tensors, head / "model.safetensors")
    assert cli.main(["doctor", "--json"]) == 1
    listed = json.loads(capsys.readouterr().out)
    told = next(check for check in listed if check["name"] == "head")
    assert [finding["field"] for finding in told["findings"]] == ["embed_tokens.weight"]
    assert "export the head without embed_tokens.weight" in told["remedy"]


def test_a_head_for_shorter_texts_than_its_target_is_a_warning(target, head):
    longer = {**TARGET, "max_position_embeddings": 2 * HEAD.max_position_embeddings}
    (target / "config.json").write_text(json.dumps(longer))
    check, config = model_checks.check_head(str(head), target)
    assert check.status == "warn"
    assert config is not None
    assert f"max_position_embeddings = {HEAD.max_position_embeddings}" in check.detail
    assert "--context-length" in check.remedy


def test_head_that_is_missing(target):
    assert model_checks.check_head(None, target)[0].status == "fail"
    assert "JETSPEC_HEAD" in model_checks.check_head(None, target)[0].remedy
    assert model_checks.check_head("/no/head", target)[0].status == "fail"
    check, _ = model_checks.check_head(None, None, "/no/model")
    assert (check.status, check.detail) == ("warn", "none named for /no/model")


def test_target_on_and_off_this_disk(target, tmp_path, monkeypatch):
    monkeypatch.setenv("JETSPEC_CACHE", str(tmp_path / "empty"))
    assert model_checks.check_target(str(target)) == (Check("target", "ok", str(target)), target)
    assert model_checks.check_target(None)[0].status == "warn"
    assert model_checks.check_target("org/model")[0].status == "warn"
    assert model_checks.check_target("/no/model")[0].status == "fail"


def test_other_sglang_is_refused(monkeypatch):
    monkeypatch.setattr(checks, "version", lambda _: "0.5.22")
    check = checks.check_sglang()
    assert check.status == "fail"
    assert "sglang==0.5.23" in check.remedy


def test_plugin_left_out_by_environment(monkeypatch):
    monkeypatch.setenv("SGLANG_PLUGINS", "other")
    assert checks.check_plugin().status == "fail"
    monkeypatch.setenv("SGLANG_PLUGINS", "other, jetspec")
    assert checks.check_plugin().status == "ok"


def test_plugin_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(checks, "entry_points", lambda group: [])
    assert checks.check_plugin().status == "fail"


def test_platform_verdicts(monkeypatch):
    monkeypatch.setenv("JETSPEC_PLATFORM", "gpu")
    assert checks.check_platform().status == "fail"
    monkeypatch.setenv("JETSPEC_PLATFORM", "host")
    assert checks.check_platform().detail.startswith("host")
    monkeypatch.setenv("SGLANG_PLATFORM", "other")
    assert checks.check_platform().status == "fail"
    monkeypatch.setenv("JETSPEC_PLATFORM", "off")
    monkeypatch.setattr(activation, "has_accelerator", lambda: False)
    assert checks.check_platform().status == "fail"


@pytest.mark.parametrize(("flags", "status"), [("sse avx2 fma", "ok"), ("sse avx", "fail")])
def test_cpu_features(tmp_path, flags, status):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags : {flags}\n")
    assert checks.check_cpu(file).status == status


@pytest.mark.parametrize(
    ("flags", "dtype"),
    [("avx2 fma", "float32"), ("avx2 fma avx512f avx512_bf16 amx_bf16", "bfloat16")],
)
def test_cpu_tells_the_default_dtype(tmp_path, flags, dtype):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags\t\t: {flags}\n")
    assert f"serves in {dtype} by default" in checks.check_cpu(file).detail
    assert default_dtype(tmp_path / "none") == "float32"


@pytest.mark.parametrize(
    ("limit", "threads", "status", "told"),
    [
        (None, None, "ok", "none: 8 CPUs"),
        (2.5, None, "ok", "2.5 of 8 CPUs: `jetspec serve` starts 2 threads"),
        (2.5, "8", "warn", "OMP_NUM_THREADS=8"),
        (2.5, "1", "ok", "starts 1 threads"),
    ],
)
def test_cpu_quota(limit, threads, status, told, monkeypatch):
    monkeypatch.setattr(quota, "quota", lambda: limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    check = checks.check_quota()
    assert (check.status, told in check.detail) == (status, True)


def test_no_lscpu(tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    file.write_text("flags : avx2 fma\n")
    failed = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(checks.subprocess, "run", lambda *_, **__: failed)
    assert checks.check_cpu(file).detail == "lscpu fails"


def test_no_compiler(monkeypatch, tmp_path):
    from jetspec_sglang.host import kernels

    def missing():
        raise build.BuildError("no C++ compiler: g++ is not on PATH")

    monkeypatch.setattr(kernels, "load", missing)
    check = checks.check_native()
    assert check.status == "fail"
    assert "g++" in check.remedy


def test_check_that_breaks_is_a_failure():
    def broken():
        raise RuntimeError("odd")

    assert checks.guarded("x", broken) == Check(
        "x", "fail", "RuntimeError: odd", "report this as a bug"
    )


@pytest.fixture
def sound(monkeypatch, target, head):
    """A machine on which everything but what a test changes is well."""
    monkeypatch.setenv("JETSPEC_PLATFORM", "host")
    monkeypatch.setattr(checks, "check_native", lambda: Check("native library", "ok", ""))
    monkeypatch.setattr(checks, "check_port", lambda port, flag: Check("port", "ok", ""))
    monkeypatch.setattr(embedded, "cached_path", lambda: target)
    monkeypatch.setattr(embedded, "head_path", lambda: str(head))
    monkeypatch.setattr(model_checks, "free_memory", lambda host: 1 << 40)


@pytest.mark.usefixtures("sound")
def test_all_is_well(capsys):
    assert cli.main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "FAIL" not in shown
    assert "memory" in shown


@pytest.mark.usefixtures("sound")
def test_failure_exits_1_and_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(embedded, "head_path", lambda: None)
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL head" in shown
    assert "→ set JETSPEC_HEAD" in shown


@pytest.mark.usefixtures("sound")
def test_json(capsys):
    assert cli.main(["doctor", "--json", "--batch", "2", "--budget", "8"]) == 0
    listed = json.loads(capsys.readouterr().out)
    memory = next(check for check in listed if check["name"] == "memory")
    assert memory["status"] == "ok"
    assert "batch 2, B 8" in memory["detail"]


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "not JSON"), ('{"nope": 1}', "nope"), ('{"table": {"4": 65}}', "table.4 = 65")],
)
@pytest.mark.usefixtures("sound")
def test_settings_that_no_server_would_start_with(text, named, monkeypatch, capsys):
    monkeypatch.setenv("JETSPEC_SETTINGS", text)
    assert cli.main(["doctor", "--budget", "64"]) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if "FAIL" in line]
    assert len(failed) == 1
    assert "settings" in failed[0]
    assert named in failed[0]


@pytest.mark.usefixtures("sound")
def test_an_unknown_platform_is_one_failure(monkeypatch, capsys):
    monkeypatch.setenv("JETSPEC_PLATFORM", "nope")
    assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("FAIL") == 1
    assert "FAIL platform" in shown


@pytest.mark.parametrize("port", ["0", "-1", "99999"])
def test_ports_out_of_range(port, capsys):
    assert cli.main(["doctor", "--port", port]) == 2
    assert f"--port is {port}: must be 1 to 65535" in capsys.readouterr().err


def test_a_reader_that_leaves_early():
    """`jetspec doctor --json | head -1`: no traceback."""
    script = """if True:
        import sys
        from jetspec_sglang import cli
        from jetspec_sglang.cli import doctor
        doctor.run = lambda args: print("[]") or 1
        sys.exit(cli.main(["doctor"]))
    """
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert (process.returncode, process.stderr) == (141, "")


@pytest.mark.parametrize("flag", ["--batch", "--budget", "--context"])
def test_sizes_below_one(flag, capsys):
    assert cli.main(["doctor", flag, "0"]) == 2
    assert f"{flag} is 0" in capsys.readouterr().err
