"""Order, statistics and table of the serving benchmark, without a server."""

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspec_sglang.bench.report import markdown
from jetspec_sglang.bench.speed import Cell, Config, Sample, Spread, schedule, summarise, table
from jetspec_sglang.client.load import LoadResult, summed
from jetspec_sglang.client.measured import Launch

PLAIN, HALF = Launch("float32", None), Launch("bfloat16", None)
CHAIN, TREE = Launch("float32", "chain"), Launch("float32", "best_first")
CONFIGS = [
    Config(PLAIN, 0), Config(HALF, 0), Config(CHAIN, 8), Config(TREE, 16), Config(TREE, 32),
]  # fmt: skip


@given(
    repeats=st.integers(1, 4),
    batches=st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True),
    together=st.booleans(),
)
def test_a_repeat_measures_every_cell_once(repeats, batches, together):
    cells = schedule(CONFIGS, batches, repeats, together=together)
    assert [r for r, _ in groupby(cells, key=lambda cell: cell.repeat)] == list(range(repeats))
    counts = Counter(cells)
    assert len(counts) == repeats * len(batches) * len(CONFIGS)
    assert set(counts.values()) == {1}


def test_one_server_at_a_time_starts_once_a_repeat_and_another_begins_each():
    cells = schedule(CONFIGS, [1, 2], 4, together=False)
    starts = [(cell.repeat, cell.config.launch) for cell in cells]
    runs = [key for key, _ in groupby(starts)]
    assert len(runs) == 4 * 4
    assert len({launch for repeat, launch in runs[::4]}) == 4


def test_together_alternates_between_servers_and_rotates():
    cells = schedule(CONFIGS, [1, 2], 2, together=True)
    first = [cell.config for cell in cells[: len(CONFIGS)]]
    second = [cell.config for cell in cells[len(CONFIGS) : 2 * len(CONFIGS)]]
    assert first == CONFIGS
    assert second == [*CONFIGS[1:], CONFIGS[0]]


def sample(config, repeat, tokens, batch=1, rounds=0, drafts=0):
    return Sample(Cell(repeat, config, batch), LoadResult(1.0, tokens, rounds, drafts))


def test_ratios_pair_a_repeat_with_plain_decoding_of_the_same_dtype():
    plain, half, tree = CONFIGS[0], CONFIGS[1], CONFIGS[3]
    results = summarise(
        [
            # The machine is half as fast in the second repeat; the ratio stays.
            sample(plain, 0, 100),
            sample(tree, 0, 150, rounds=60, drafts=90),
            sample(half, 0, 300),
            sample(plain, 1, 50),
            sample(tree, 1, 75, rounds=30, drafts=45),
            sample(half, 1, 150),
        ]
    )
    assert results[tree, 1].speed == Spread(112.5, 75, 150)
    assert results[tree, 1].ratio == Spread(1.5, 1.5, 1.5)
    assert results[half, 1].ratio == Spread(1.0, 1.0, 1.0)
    assert results[tree, 1].tau == 2.5
    assert results[plain, 1].tau == 1.0


def test_no_ratio_without_plain_decoding():
    assert summarise([sample(CONFIGS[3], 0, 10, rounds=5, drafts=5)])[CONFIGS[3], 1].ratio is None


def test_table_has_a_row_a_configuration_and_a_column_a_batch():
    samples = [
        sample(config, 0, 10 * (1 + i) * batch, batch, rounds=10, drafts=5 + batch)
        for i, config in enumerate(CONFIGS)
        for batch in (1, 4)
    ]
    text = markdown(table(summarise(samples))).splitlines()
    assert text[0] == "| decoding | dtype | B | τ | batch 1 | batch 4 |"
    assert text[2] == "| plain | bfloat16 |  |  | 20.0 (20.0-20.0) 1.00x | 80.0 (80.0-80.0) 1.00x |"
    assert [line.split(" | ")[0] for line in text[3:]] == ["| plain", "| chain", "| tree", "| tree"]
    assert "| tree | float32 | 32 | 1.60-1.90 | 50.0 (50.0-50.0) 5.00x |" in text[6]


def answer(details):
    return {"usage": {"completion_tokens": 5}, "sglext": {"spec_tokens_details": details}}


@pytest.mark.parametrize("wrap", [lambda details: details, lambda details: [details]])
def test_load_adds_up_answers_in_both_forms_of_the_extension(wrap):
    details = {"spec_verify_ct": 3, "spec_num_correct_drafts": 4}
    load = summed(2.0, [answer(wrap(details)), answer(wrap(details))])
    assert load == LoadResult(2.0, 10, 6, 8)
    assert load.speed == 5.0
    assert load.tau == 1 + 8 / 6


def test_load_of_plain_decoding_has_tau_one():
    assert summed(1.0, [{"usage": {"completion_tokens": 5}, "sglext": None}]).tau == 1.0
