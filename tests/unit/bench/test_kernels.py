"""The benchmarks run and report every case they promise."""

import torch

from jetspec_sglang.bench import attention, linear, neighbour, tree
from jetspec_sglang.bench.timing import Timing
from jetspec_sglang.host.kernels import threads


def test_tree_benchmark_covers_every_batch_and_budget(monkeypatch):
    monkeypatch.setattr(tree, "BATCHES", (1, 2))
    monkeypatch.setattr(tree, "BUDGETS", (4,))
    monkeypatch.setattr(tree, "measure", lambda call, repeats, clock: call())
    assert [(row.batch, row.budget) for row in tree.run()] == [(1, 4), (2, 4)]


def test_attention_benchmark_compares_equal_results(monkeypatch):
    """What is timed as the baseline computes what the kernel computes."""
    monkeypatch.setattr(attention, "ROWS", (8,))
    monkeypatch.setattr(attention, "PREFIXES", (20,))
    outputs = []
    real = attention.attention

    def keep_output(*args):
        real(*args)
        outputs.append(args[3].transpose(0, 1).float())

    monkeypatch.setattr(attention, "attention", keep_output)
    monkeypatch.setattr(attention, "measure", lambda call, repeats, clock: call())
    for row, ours in zip(attention.run(), outputs, strict=True):
        tolerance = 1e-5 if row.dtype is torch.float32 else 2e-2
        for theirs in (row.gather_and_sdpa, row.sdpa):
            assert torch.allclose(theirs[0].float(), ours, atol=tolerance)


def test_linear_benchmark_compares_equal_results(monkeypatch):
    outputs = {}

    def keep(name, function):
        def call(*args, **more):
            outputs.setdefault(name, []).append(function(*args, **more))
            return outputs[name][-1]

        return call

    monkeypatch.setattr(linear, "LAYERS", 1)
    monkeypatch.setattr(linear, "linear", keep("own", linear.linear))
    monkeypatch.setattr(linear.F, "linear", keep("torch", linear.F.linear))
    monkeypatch.setattr(linear, "measure", lambda call, clock: call() or Timing(2.0, 1.0, 3.0))
    rows = linear.table(rows=(3, 20))
    kinds = sum(len(linear.dots(dtype)) for dtype in linear.DTYPES)
    assert [row[1] for row in rows] == ["rows", *["3", "20"] * kinds]
    assert len(outputs["own"]) == 2 * kinds * len(linear.SHAPES)
    for ours, theirs in zip(outputs["own"], outputs["torch"], strict=True):
        tolerance = 1e-3 if ours.dtype == torch.float32 else 1.0
        assert torch.allclose(ours, theirs, atol=tolerance, rtol=1e-2)


def test_the_neighbour_runs_during_the_last_measurement_alone(monkeypatch):
    children = []
    real = neighbour.subprocess.Popen

    def popen(*args):
        children.append(real(*args))
        return children[-1]

    counts = []

    def measure(call, seconds):
        call()
        running = [child for child in children if child.poll() is None]
        counts.append((threads(), len(running)))
        return Timing(2.0, 1.0, 3.0)

    monkeypatch.setattr(neighbour, "LAYERS", 1)
    monkeypatch.setattr(neighbour, "ROWS", (3,))
    monkeypatch.setattr(neighbour, "measure", measure)
    monkeypatch.setattr(neighbour.subprocess, "Popen", popen)
    assert neighbour.table()[1][0] == "3"
    assert counts == [(threads(), 0), (1, 0), (threads(), 1)]
    assert all(child.poll() is not None for child in children)
