"""The budget while serving: changes, table, read-back, refusals, and the series that count it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from jetspec_sglang.metrics import PHASES
from tests.integration.cases import delta, flush_series, greedy
from tests.support.prompts import chat_ids, texts
from tests.support.server import Server, total

pytestmark = pytest.mark.integration
SetBudget = Callable[[int], None]


def requests(count: int, tokens: int) -> list[dict[str, Any]]:
    return [greedy(chat_ids(text), tokens, ignore_eos=True) for text in texts(count)]


def test_read_back(jetspec: Server, budget: SetBudget) -> None:
    budget(16)
    state = jetspec.jetspec()
    assert state["budget"] == 16
    assert state["table"] == {}
    assert state["tiers"] == [1, 2, 4, 8, 16, 32, 64]
    assert state["max_budget"] == 64
    assert state["width"] == 8
    assert state["block_size"] == 8
    assert state["last_refusal"] is None
    assert isinstance(state["rounds"], int)
    assert all(seconds > 0 for seconds in state["round_cost_seconds"].values())


def test_uniform_then_table_then_uniform(jetspec: Server, budget: SetBudget) -> None:
    budget(32)
    assert jetspec.set_state({"jetspec_tree_budget.4": 8, "jetspec_tree_budget.8": 2})
    assert jetspec.jetspec()["table"] == {"4": 8, "8": 2}
    assert jetspec.set_state({"jetspec_tree_budget.8": 4})
    assert jetspec.jetspec()["table"] == {"4": 8, "8": 4}
    assert jetspec.set_state({"jetspec_tree_budget": 16})
    assert jetspec.jetspec()["table"] == {}
    assert jetspec.jetspec()["budget"] == 16


def test_a_whole_float_is_a_budget(jetspec: Server, budget: SetBudget) -> None:
    budget(16)
    assert jetspec.set_state({"jetspec_tree_budget": 8.0})
    assert jetspec.jetspec()["budget"] == 8


@pytest.mark.parametrize(
    "values",
    [
        {"jetspec_tree_budget": 0},
        {"jetspec_tree_budget": -1},
        {"jetspec_tree_budget": 65},
        {"jetspec_tree_budget": 1e9},
        {"jetspec_tree_budget": 1.5},
        {"jetspec_budget": 8},
        {"jetspec_tree_budget.0": 8},
        {"jetspec_tree_budget.x": 8},
        {"jetspec_tree_budget": 8, "jetspec_tree_budget.4": 1000},
        {"jetspec_tree_budget": 8, "jetspec_unknown": 1},
    ],
    ids=str,
)
def test_refusals_change_nothing(
    values: dict[str, float], jetspec: Server, budget: SetBudget
) -> None:
    budget(16)
    assert jetspec.set_state({"jetspec_tree_budget.8": 4})
    before = jetspec.jetspec()
    assert not jetspec.set_state(values)
    after = jetspec.jetspec()
    assert (after["budget"], after["table"]) == (before["budget"], before["table"])
    wrong = list(values)[-1]
    assert wrong in after["last_refusal"]
    assert jetspec.set_state({"jetspec_tree_budget": 16})
    assert jetspec.jetspec()["last_refusal"] is None


@pytest.mark.parametrize("text", ["NaN", '"x"', "null", "[8]"])
def test_values_that_are_no_budget(text: str, jetspec: Server, budget: SetBudget) -> None:
    """SGLang's own parser refuses some of them; none may reach the engine."""
    budget(16)
    answer = jetspec.client.post(
        "/set_internal_state",
        content=f'{{"server_args": {{"jetspec_tree_budget": {text}}}}}',
        headers={"content-type": "application/json"},
    )
    assert answer.status_code in (400, 422) or answer.json() == [False], answer.text
    assert jetspec.jetspec()["budget"] == 16
    jetspec.generate(requests(1, 4)[0])


def test_a_key_of_sglang_beside_ours(jetspec: Server, budget: SetBudget) -> None:
    """Whole or not at all: what SGLang refuses stops our key too."""
    budget(16)
    assert not jetspec.set_state({"jetspec_tree_budget": 8, "pp_max_micro_batch_size": 0})
    assert jetspec.jetspec()["budget"] == 16


def test_table_follows_the_running_batch(jetspec: Server, budget: SetBudget) -> None:
    budget(16)
    assert jetspec.set_state({"jetspec_tree_budget.4": 2})
    before = flush_series(jetspec)
    jetspec.generate_all(requests(6, 24), 6)
    after = flush_series(jetspec)
    crowded = delta(before, after, "jetspec_request_rounds_total", budget="2")
    rounds = delta(before, after, "jetspec_rounds_total", budget="2")
    assert rounds > 0
    assert crowded / rounds >= 4
    alone = delta(before, after, "jetspec_request_rounds_total", budget="16")
    assert alone / delta(before, after, "jetspec_rounds_total", budget="16") < 4


def test_budget_one_is_plain_and_keeps_the_head_fed(jetspec: Server, budget: SetBudget) -> None:
    budget(1)
    before = flush_series(jetspec)
    answers = jetspec.generate_all(requests(2, 12), 2)
    after = flush_series(jetspec)
    assert all(len(answer["output_ids"]) == 12 for answer in answers)
    rounds = delta(before, after, "jetspec_request_rounds_total", budget="1")
    assert delta(before, after, "jetspec_tokens_total", budget="1") == rounds
    assert delta(before, after, "jetspec_accepted_node_budget_count", budget="1") == 0
    draft = delta(before, after, "jetspec_round_seconds_total", budget="1", phase="draft")
    verify = delta(before, after, "jetspec_round_seconds_total", budget="1", phase="verify")
    assert draft < 0.02 * verify


def test_series_and_their_arithmetic(jetspec: Server, budget: SetBudget) -> None:
    budget(16)
    before = flush_series(jetspec)
    answers = jetspec.generate_all(requests(5, 30), 3)
    after = flush_series(jetspec)
    by = {"budget": "16"}
    rounds = delta(before, after, "jetspec_rounds_total", **by)
    request_rounds = delta(before, after, "jetspec_request_rounds_total", **by)
    tokens = delta(before, after, "jetspec_tokens_total", **by)
    accepted = delta(before, after, "jetspec_accepted_node_budget_count", **by)
    assert rounds <= request_rounds <= 3 * rounds
    assert tokens == request_rounds + accepted
    assert delta(before, after, "jetspec_verify_rows_total") == 16 * request_rounds
    # The first token of a request is prefill's; a last round may run past its end.
    emitted = sum(len(answer["output_ids"]) - 1 for answer in answers)
    assert request_rounds == 1 + sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    assert emitted <= tokens <= emitted + 8 * (len(answers) + 1)
    for phase in PHASES:
        assert delta(before, after, "jetspec_round_seconds_total", phase=phase, **by) > 0
    curve = [
        total(after, "jetspec_accepted_node_budget_bucket", le=f"{le}.0", **by)
        for le in (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
    ]
    assert curve == sorted(curve)
    assert curve[4] == total(after, "jetspec_accepted_node_budget_count", **by)
    assert total(after, "jetspec_tree_budget") == 16
    assert total(after, "jetspec_tree_budget_requested") == 16
    assert total(after, "jetspec_info") == 1
    assert time.time() - total(after, "jetspec_last_round_timestamp_seconds") < 60
    costs = {
        dict(labels)["rows"]: value
        for (name, labels), value in after.items()
        if name == "jetspec_round_cost_seconds"
    }
    assert {"1", "16"} <= set(costs)
    assert all(math.isfinite(value) and value > 0 for value in costs.values())


def test_changes_are_counted_once(jetspec: Server, budget: SetBudget) -> None:
    budget(16)
    before = jetspec.metrics()
    jetspec.set_budget(32)
    jetspec.set_budget(32)
    jetspec.set_budget(8)
    after = jetspec.metrics()
    assert delta(before, after, "jetspec_budget_changes_total", source="api") == 2
    assert total(after, "jetspec_tree_budget_requested") == 8
