"""Budget plans: which budget a batch runs at, what is refused, and that a refusal changes nothing."""

import math

import pytest

from jetspec_sglang.budget import KEY, BudgetPlan, BudgetRefusedError, TreeBudget
from jetspec_sglang.settings import Settings


def state(**changes):
    settings = {
        "budget": 16,
        "table": {},
        "tiers": (1, 16, 32, 64),
        "max_budget": 64,
    } | changes
    return TreeBudget(**settings)


def set_budget(budgets, updates):
    return budgets.apply(budgets.validate(updates))


def test_table_entries_hold_from_their_batch_on():
    budgets = state()
    set_budget(budgets, {KEY: 64, f"{KEY}.8": 16, f"{KEY}.4": 32})
    assert [budgets.for_batch(n) for n in (1, 3, 4, 7, 8, 100)] == [64, 64, 32, 32, 16, 16]


def test_a_uniform_budget_clears_the_table():
    budgets = state(table={4: 8})
    set_budget(budgets, {KEY: 32})
    assert budgets.plan == BudgetPlan(32)


def test_table_entries_alone_keep_the_uniform_budget():
    budgets = state()
    set_budget(budgets, {f"{KEY}.2": 4})
    set_budget(budgets, {f"{KEY}.8": 2})
    assert budgets.plan == BudgetPlan(16, ((2, 4), (8, 2)))


def test_settings_make_the_first_plan():
    settings = Settings(budget=8, table={4: 2}, tiers=(1, 8))
    budgets = TreeBudget.from_settings(settings, "cpu", 16)
    assert (budgets.plan, budgets.tiers) == (BudgetPlan(8, ((4, 2),)), (1, 8))
    assert TreeBudget.from_settings(Settings(), "cpu", 4).plan == BudgetPlan(4)
    assert TreeBudget.from_settings(Settings(), "cuda", 256).plan == BudgetPlan(64)


@pytest.mark.parametrize(
    ("settings", "named"),
    [(Settings(budget=17), "budget = 17"), (Settings(table={2: 99}), "table.2 = 99")],
)
def test_settings_above_the_launch_maximum(settings, named):
    with pytest.raises(ValueError, match=f"JETSPEC_SETTINGS: {named}: .* 1 to 16") as error:
        TreeBudget.from_settings(settings, "cpu", 16)
    assert "--speculative-num-draft-tokens" in str(error.value)


@pytest.mark.parametrize(
    "value", [0, -1, 65, 10**9, 10**60, 1.5, math.nan, math.inf, "16", None, True, [16]]
)
@pytest.mark.parametrize("key", [KEY, f"{KEY}.8"])
def test_bad_budgets_are_refused_with_field_value_and_range(key, value):
    budgets = state(table={4: 8})
    before = budgets.plan
    with pytest.raises(BudgetRefusedError) as refusal:
        budgets.validate({key: value})
    assert budgets.plan == before
    assert key in str(refusal.value)
    assert repr(value) in str(refusal.value)
    assert "1 to 64" in str(refusal.value)
    assert budgets.snapshot()["last_refusal"] == str(refusal.value)


@pytest.mark.parametrize(
    "key",
    ["jetspec_other", f"{KEY}.", f"{KEY}.0", f"{KEY}.-1", f"{KEY}.x", f"{KEY}.1.2", f"{KEY}.²"],
)
def test_unknown_keys_are_refused(key):
    with pytest.raises(BudgetRefusedError, match=r"is not a budget key"):
        state().validate({key: 16})


@pytest.mark.parametrize(
    "update", [{KEY: 10**400}, {KEY: -(10**5000)}, {KEY: "9" * 400}, {f"{KEY}.{'9' * 5000}": 8}]
)
def test_huge_numbers_are_refused_in_a_short_line(update):
    with pytest.raises(BudgetRefusedError) as refusal:
        state().validate(update)
    assert len(str(refusal.value)) < 300


def test_one_bad_entry_refuses_the_whole_body():
    budgets = state()
    with pytest.raises(BudgetRefusedError):
        budgets.validate({KEY: 32, f"{KEY}.8": 0})
    assert budgets.plan == BudgetPlan(16)


def test_a_whole_float_is_a_budget():
    budgets = state()
    set_budget(budgets, {KEY: 32.0})
    assert budgets.plan.uniform == 32
    assert isinstance(budgets.plan.uniform, int)


def test_success_clears_the_last_refusal():
    budgets = state()
    with pytest.raises(BudgetRefusedError):
        budgets.validate({KEY: 0})
    assert not set_budget(budgets, {KEY: 16})
    assert budgets.last_refusal is None


@pytest.mark.parametrize("budget", [0, 65, 1.5])
def test_start_up_budgets_are_checked_too(budget):
    with pytest.raises(BudgetRefusedError, match="budget"):
        state(budget=budget)
    with pytest.raises(BudgetRefusedError, match=r"table\.8"):
        state(table={8: budget})


def test_tiers_keep_within_the_maximum_and_include_one():
    assert state(tiers=(16, 32, 256)).tiers == (1, 16, 32)
