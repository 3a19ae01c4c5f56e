"""The control hooks on stand-ins of SGLang's scheduler: whole bodies or nothing."""

from types import SimpleNamespace

import pytest
from sglang.srt.managers.io_struct import SetInternalStateReq, SetInternalStateReqOutput

from jetspec_sglang.budget import KEY, BudgetPlan, TreeBudget
from jetspec_sglang.hooks import control
from jetspec_sglang.round.worker import JetSpecWorker


def worker():
    """A worker with its budget state alone; nothing else is touched by control."""
    built = object.__new__(JetSpecWorker)
    built.budgets = TreeBudget(budget=16, table={}, tiers=(1, 16, 64), max_budget=64)
    built.apply_plan = built.budgets.apply
    return built


class Original:
    """SGLang's own handler: remembers what it was given."""

    def __init__(self, updated=True):
        self.updated = updated
        self.given = []

    def __call__(self, scheduler, recv_req):
        self.given.append(dict(recv_req.server_args))
        return SetInternalStateReqOutput(updated=self.updated)


def send(body, *, original=None, draft_worker=None):
    scheduler = SimpleNamespace(draft_worker=draft_worker or worker())
    original = original or Original()
    answer = control.set_internal_state(original, scheduler, SetInternalStateReq(server_args=body))
    return answer.updated, scheduler.draft_worker, original


def test_a_budget_is_applied_and_not_passed_on():
    updated, served, original = send({KEY: 32})
    assert updated
    assert served.budgets.plan == BudgetPlan(32)
    assert original.given == []


def test_other_keys_go_to_sglang_untouched():
    updated, served, original = send({"pp_max_micro_batch_size": 4})
    assert updated
    assert original.given == [{"pp_max_micro_batch_size": 4}]
    assert served.budgets.plan == BudgetPlan(16)


def test_a_mixed_body_is_split():
    updated, served, original = send({KEY: 32, "pp_max_micro_batch_size": 4})
    assert updated
    assert original.given == [{"pp_max_micro_batch_size": 4}]
    assert served.budgets.plan == BudgetPlan(32)


def test_a_body_that_sglang_refuses_changes_no_budget():
    updated, served, _ = send({KEY: 32, "nonsense": 1}, original=Original(updated=False))
    assert not updated
    assert served.budgets.plan == BudgetPlan(16)
    assert "SGLang refused nonsense" in served.budgets.snapshot()["last_refusal"]


@pytest.mark.parametrize("bad", [{KEY: 0}, {KEY: 1.5}, {"jetspec_nonsense": 1}])
def test_a_refused_budget_reaches_nobody(bad):
    updated, served, original = send({**bad, "pp_max_micro_batch_size": 4})
    assert not updated
    assert original.given == []
    assert served.budgets.plan == BudgetPlan(16)
    assert served.budgets.last_refusal


def test_without_jetspec_the_keys_are_refused():
    updated, _, original = send({KEY: 32}, draft_worker=object())
    assert not updated
    assert original.given == []


def batch(*, decode=True, penalties=True, processors=False):
    return SimpleNamespace(
        forward_mode=SimpleNamespace(is_decode=lambda: decode),
        sampling_info=SimpleNamespace(
            penalizer_orchestrator=SimpleNamespace(is_required=penalties),
            has_custom_logit_processor=processors,
        ),
    )


@pytest.mark.parametrize(
    ("this", "queued", "before", "expected"),
    [
        (batch(), 1, False, True),
        (batch(), 0, False, False),
        (batch(penalties=False), 1, False, False),
        (batch(penalties=False, processors=True), 1, False, True),
        (batch(decode=False), 1, False, False),
        (None, 1, False, False),
        (batch(penalties=False), 0, True, True),
    ],
)
def test_only_a_decode_batch_that_reads_every_token_waits(this, queued, before, expected):
    scheduler = SimpleNamespace(draft_worker=worker(), result_queue=[object()] * queued)
    assert control.needs_sync(lambda *_: before, scheduler, this, None) is expected
