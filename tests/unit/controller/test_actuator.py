"""Messages of the admin API, and the breaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetspec_controller.actuators.breaker import CLOSED, OPEN, TRIAL, Breaker
from jetspec_controller.actuators.messages import budget_state, changes, launch_changes, taken
from jetspec_controller.core import Fault
from jetspec_controller.http_client import FetchError
from jetspec_controller.settings import ControlSettings

from tests.support.fake_engine import FakeEngine


def test_uniform_budget() -> None:
    assert changes(64, ()) == {"jetspec_tree_budget": 64}


@given(
    st.dictionaries(st.integers(1, 64), st.integers(1, 256), min_size=1, max_size=6).map(
        lambda entries: tuple(sorted({1: 64, **entries}.items()))
    )
)
def test_table_reads_back_as_it_was_sent(table) -> None:
    engine = FakeEngine(launch_budget=32)
    engine.set_budget({"jetspec_tree_budget.5": 7})
    wanted = changes(table[0][1], table)
    assert engine.set_budget(wanted)
    state = budget_state({"internal_states": [{"jetspec": engine.read_back()}]})
    assert state.table == table
    assert launch_changes(state) == wanted


def test_ranks_that_disagree() -> None:
    one, two = FakeEngine().read_back(), FakeEngine(launch_budget=16).read_back()
    body = {"internal_states": [{"jetspec": one}, {"jetspec": one}]}
    assert budget_state(body).consistent
    body["internal_states"][1] = {"jetspec": two}
    assert not budget_state(body).consistent
    body["internal_states"][1] = {}
    assert not budget_state(body).consistent


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (None, Fault.PARSE),
        ({}, Fault.PARSE),
        ({"internal_states": [3]}, Fault.PARSE),
        ({"internal_states": []}, Fault.EMPTY),
        ({"internal_states": [{}]}, Fault.EMPTY),
        ({"internal_states": [{"jetspec": {}}]}, Fault.PARSE),
        ({"internal_states": [{"jetspec": {"budget": "x"}}]}, Fault.PARSE),
    ],
)
def test_server_info_of_another_shape(body, fault: Fault) -> None:
    with pytest.raises(FetchError) as error:
        budget_state(body)
    assert error.value.fault is fault


def test_every_rank_must_accept() -> None:
    assert taken([True, True])
    assert not taken([True, False])
    for body in ([], {}, None, [1], "true", True):
        with pytest.raises(FetchError):
            taken(body)


def test_breaker_opens_tries_and_doubles() -> None:
    breaker = Breaker(ControlSettings(breaker_failures=2, breaker_open_s=10, breaker_max_open_s=30))
    breaker.failed(0.0)
    assert breaker.level(0.0) == CLOSED
    breaker.failed(1.0)
    assert breaker.level(10.9) == OPEN
    assert breaker.level(11.0) == TRIAL
    breaker.failed(11.0)
    assert (breaker.level(30.9), breaker.level(31.0)) == (OPEN, TRIAL)
    breaker.failed(31.0)
    assert (breaker.level(60.9), breaker.level(61.0)) == (OPEN, TRIAL)
    breaker.succeeded()
    assert breaker.level(61.0) == CLOSED
    breaker.failed(62.0)
    assert breaker.level(62.0) == CLOSED


@given(st.lists(st.booleans(), max_size=60))
def test_breaker_never_stays_shut_for_ever(results: list[bool]) -> None:
    settings = ControlSettings()
    breaker, now = Breaker(settings), 0.0
    for result in results:
        if breaker.level(now) == OPEN:
            now += settings.breaker_max_open_s
            assert breaker.level(now) == TRIAL
        breaker.succeeded() if result else breaker.failed(now)
