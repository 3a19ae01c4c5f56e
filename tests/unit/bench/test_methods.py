"""The comparison of methods: what runs, what says why it does not, and the ratios."""

from contextlib import contextmanager

import pytest

from jetspec_sglang.bench import methods
from jetspec_sglang.bench.methods import NEEDS_CUDA, PLAIN, Sample, comparison, measure, table
from jetspec_sglang.client.load import LoadResult


def planned(**changes):
    values = {"head": None, "dflash_head": "d", "budgets": [8, 16], "chain": 4, "cuda": False}
    return comparison(**(values | changes))


def test_without_cuda_stock_methods_say_so():
    missing = {method.name: method.missing for method in planned() if method.missing}
    assert missing == {"SGLang NGRAM": NEEDS_CUDA, "SGLang EAGLE-3": NEEDS_CUDA}
    assert all(not method.missing for method in planned(cuda=True, eagle3="e"))


def test_without_a_bidirectional_head_its_rows_say_so():
    missing = [m.name for m in planned(dflash_head=None) if "bidirectional" in m.missing]
    assert missing == ["DFlash chain", "DDTree (DFlash head, best-first)"]


def test_a_causal_head_of_equal_training_has_rows_of_its_own():
    flags = {m.name: m.flags[-1] for m in planned(head="own", equal_head="equal") if m.flags}
    assert [name for name, head in flags.items() if head == "equal"] == [
        "JetSpec chain (head trained as DFlash's)",
        "JetSpec best-first (head trained as DFlash's)",
    ]
    assert flags["JetSpec best-first"] == "own"


def test_ratios_are_within_a_repeat():
    own = [method for method in planned() if method.name in (PLAIN, "JetSpec chain")]
    samples = []
    for repeat, slow in enumerate((1.0, 2.0, 10.0)):
        samples.append(Sample(repeat, PLAIN, "quiz", 0, LoadResult(slow, 100)))
        samples.append(
            Sample(repeat, "JetSpec chain", "quiz", 4, LoadResult(slow / 2, 100, 50, 50))
        )
    assert table(own, samples) == [
        ["method", "B", "quiz: τ", "tok/s", "ratio"],
        [PLAIN, "", "1.00", "50.0", "1.00x"],
        ["JetSpec chain", "4", "2.00", "100.0", "2.00x"],
    ]


def test_a_missing_method_fills_its_row():
    rows = table(planned(), [Sample(0, PLAIN, name, 0, LoadResult(1, 1)) for name in ("a", "b")])
    assert {len(row) for row in rows} == {8}
    assert ["SGLang NGRAM", "", NEEDS_CUDA, "", "", "", "", ""] in rows


def test_every_method_runs_every_set_and_budget(monkeypatch, tmp_path):
    calls = []

    class Fleet:
        def __init__(self, flags):
            self.flags = flags

        def get(self, launch):
            calls.append((tuple(self.flags), launch.rule))
            return launch, True

    @contextmanager
    def fleet(flags, port, logs):
        yield Fleet(flags)

    monkeypatch.setattr(methods, "fleet", fleet)
    for name in ("warm_up", "flush_cache", "set_budget"):
        monkeypatch.setattr(methods, name, lambda *args: None)
    monkeypatch.setattr(methods, "run_load", lambda *args: LoadResult(1, 10))
    samples = list(
        measure(
            planned(), {"a": ["x"], "b": ["y"]}, dtype="float32", batch=1, max_tokens=4, repeats=2,
            flags=["--f"], port=1, logs=tmp_path,
        )
    )  # fmt: skip
    assert len(calls) == 2 * 6
    assert calls[1] == (("--f", "--speculative-draft-model-path", "d"), "chain")
    of_one = [(s.data_set, s.budget) for s in samples if s.method == "JetSpec best-first"]
    assert of_one == [("a", 8), ("a", 16), ("b", 8), ("b", 16)] * 2


@pytest.mark.parametrize("cuda", [True, False])
def test_plain_comes_first(cuda):
    assert planned(cuda=cuda)[0].name == PLAIN
