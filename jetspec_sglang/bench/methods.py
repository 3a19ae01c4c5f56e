"""Every drafting method of the paper's comparison on real servers, in one run and one table.

Contract: `comparison` and `table` are pure; `measure` talks to servers. Within a repeat each server runs
all data sets and budgets; ratios are to plain decoding of the same repeat and set. If a method
cannot run here, its row says why.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jetspec_sglang.client.load import LoadResult, flush_cache, run_load, set_budget, warm_up
from jetspec_sglang.client.measured import Launch, fleet

PLAIN = "plain decoding"
NEEDS_CUDA = "needs CUDA"


@dataclass(frozen=True, slots=True)
class Method:
    """A row group: `rule` None is plain decoding, and is not read by SGLang's own methods.

    `flags` go to its server. Budgets are B for trees and rows for chains; empty where it has none.
    `missing` says why it cannot run here.
    """

    name: str
    rule: str | None
    flags: tuple[str, ...] = ()
    budgets: tuple[int, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    repeat: int
    method: str
    data_set: str
    budget: int
    load: LoadResult


def comparison(
    *,
    head: str | None,
    dflash_head: str | None,
    budgets: Sequence[int],
    chain: int,
    cuda: bool,
    eagle3: str | None = None,
    equal_head: str | None = None,
) -> list[Method]:
    """The methods in the order of the table. `head`: None leaves the choice to `jetspec serve`.

    `equal_head`: a causal head that was trained like `dflash_head`, for rows that compare the masks.
    """
    trees = tuple(budgets)
    own = _head(head)
    both = _head(dflash_head)
    no_head = "" if dflash_head else "no bidirectional head given"
    ngram = ("--speculative-algorithm", "NGRAM")
    no_eagle = "" if cuda and eagle3 else ("no EAGLE-3 head given" if cuda else NEEDS_CUDA)
    equal = _head(equal_head)
    equals = [
        Method("JetSpec chain (head trained as DFlash's)", "chain", equal, (chain,)),
        Method("JetSpec best-first (head trained as DFlash's)", "best_first", equal, trees),
    ]
    eagle = ("--speculative-algorithm", "EAGLE3", *_head(eagle3))
    return [
        Method(PLAIN, None),
        Method("DFlash chain", "chain", both, (chain,), no_head),
        Method("DDTree (DFlash head, best-first)", "best_first", both, trees, no_head),
        *(equals if equal_head else ()),
        Method("JetSpec chain", "chain", own, (chain,)),
        Method("JetSpec accum_logp", "accum_logp", own, trees),
        Method("JetSpec best-first", "best_first", own, trees),
        Method("SGLang NGRAM", "best_first", ngram, (), "" if cuda else NEEDS_CUDA),
        Method("SGLang EAGLE-3", "best_first", eagle, (), no_eagle),
    ]


def _head(head: str | None) -> tuple[str, ...]:
    return ("--speculative-draft-model-path", head) if head else ()


def measure(
    methods: Sequence[Method],
    prompts: Mapping[str, Sequence[str]],
    *,
    dtype: str,
    batch: int,
    max_tokens: int,
    repeats: int,
    flags: Sequence[str],
    port: int,
    logs: Path,
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[Sample]:
    """Run every method that can; `prompts` by data set. One server is up at a time."""
    runnable = [method for method in methods if not method.missing]
    for repeat in range(repeats):
        turn = repeat % len(runnable)
        for method in [*runnable[turn:], *runnable[:turn]]:
            with fleet([*flags, *method.flags], port, logs) as servers:
                server, _ = servers.get(Launch(dtype, method.rule))
                for data_set, asked in prompts.items():
                    for budget in method.budgets or (0,):
                        progress(f"{method.name} {budget or ''}, {data_set}")
                        if budget:
                            set_budget(server, budget)
                        warm_up(server, asked, batch)
                        load = run_load(server, asked, batch, max_tokens)
                        flush_cache(server)
                        yield Sample(repeat, method.name, data_set, budget, load)


def table(methods: Sequence[Method], samples: Sequence[Sample]) -> list[list[str]]:
    """Header and one row per method and budget; per data set τ, tokens/s and ratio to plain."""
    sets = list(dict.fromkeys(sample.data_set for sample in samples))
    plain = {
        (sample.repeat, sample.data_set): sample.load.speed
        for sample in samples
        if sample.method == PLAIN
    }
    rows = [["method", "B", *(part for name in sets for part in (f"{name}: τ", "tok/s", "ratio"))]]
    for method in methods:
        if method.missing:
            rows.append([method.name, "", method.missing, *[""] * (3 * len(sets) - 1)])
            continue
        for budget in method.budgets or (0,):
            cells: list[str] = []
            for name in sets:
                own = [
                    sample
                    for sample in samples
                    if (sample.method, sample.data_set, sample.budget)
                    == (method.name, name, budget)
                ]
                cells += _cells(own, plain)
            rows.append([method.name, str(budget or ""), *cells])
    return rows


def _cells(samples: Sequence[Sample], plain: Mapping[tuple[int, str], float]) -> list[str]:
    """Medians over the repeats."""
    if not samples:
        return ["", "", ""]
    ratios = [
        sample.load.speed / plain[sample.repeat, sample.data_set]
        for sample in samples
        if (sample.repeat, sample.data_set) in plain
    ]
    tau = statistics.median(sample.load.tau for sample in samples)
    speed = statistics.median(sample.load.speed for sample in samples)
    ratio = f"{statistics.median(ratios):.2f}x" if ratios else ""
    return [f"{tau:.2f}", f"{speed:.1f}", ratio]
