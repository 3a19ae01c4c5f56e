"""Servers seen several times in a Prometheus, and backends that refuse the one query."""

from __future__ import annotations

from typing import Any

import pytest
from jetspec_controller.core import Reason
from jetspec_controller.sources.series import NAMES
from jetspec_controller.sources.views import View, Views, variants

pytestmark = pytest.mark.anyio

RUNNING = "sglang:num_running_reqs"


def answer(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> View:
    """The view read of one server's series, as a Prometheus answers."""
    views = Views()
    for labels, values in series:
        views.add({"instance": "10.0.0.1:30000", **labels}, values)
    return views.best()


def up(value: str, at: float = 100.0, **labels: str) -> tuple[dict[str, str], Any]:
    return {"__name__": "up", **labels}, [(at, value)]


def running(value: str, at: float = 100.0, **labels: str) -> tuple[dict[str, str], Any]:
    return {"__name__": RUNNING, "tp_rank": "0", **labels}, [(at, value)]


RECORDED: dict[str, tuple[list[Any], list[float]]] = {
    "one scraper": ([up("1", job="sglang"), running("4", job="sglang")], [4.0]),
    "thanos receivers": (
        [
            up("1", job="s", receive="true", receive_replica="0"),
            up("1", job="s", receive="true", receive_replica="1"),
            running("4", job="s", receive="true", receive_replica="0"),
            running("4", job="s", receive="true", receive_replica="1"),
        ],
        [4.0],
    ),
    "prometheus-operator's replicas, 3 s apart": (
        [
            up("1", 97.0, prometheus="m/k8s", prometheus_replica="k8s-0"),
            up("1", 100.0, prometheus="m/k8s", prometheus_replica="k8s-1"),
            running("3", 97.0, prometheus="m/k8s", prometheus_replica="k8s-0"),
            running("4", 100.0, prometheus="m/k8s", prometheus_replica="k8s-1"),
        ],
        [4.0],
    ),
    "a replica label of their own": (
        [
            up("1", job="s", cluster_member="a"),
            up("1", job="s", cluster_member="b"),
            running("4", job="s", cluster_member="a"),
            running("4", job="s", cluster_member="b"),
        ],
        [4.0],
    ),
    "two jobs scrape it": (
        [up("1", job="a"), up("1", job="b"), running("4", job="a"), running("4", job="b")],
        [4.0],
    ),
    "replicas without up": (
        [running("4", receive_replica="0"), running("4", receive_replica="1")],
        [4.0],
    ),
    "up lost a label to relabelling": (
        [up("1", job="s"), running("4", job="renamed")],
        [4.0],
    ),
    "data-parallel ranks are no replicas": (
        [
            up("1", job="s"),
            running("4", job="s", dp_rank="0"),
            running("2", job="s", dp_rank="1"),
        ],
        [2.0, 4.0],
    ),
    "data-parallel ranks, stored twice": (
        [
            up("1", job="s", receive_replica="0"),
            up("1", job="s", receive_replica="1"),
            *(
                running(value, job="s", dp_rank=rank, receive_replica=replica)
                for rank, value in (("0", "4"), ("1", "2"))
                for replica in "01"
            ),
        ],
        [2.0, 4.0],
    ),
    "one scraper cannot reach it": (
        [
            up("0", 101.0, job="a"),
            up("1", 100.0, job="b"),
            running("4", 90.0, job="a"),
            running("4", 100.0, job="b"),
        ],
        [4.0],
    ),
}


@pytest.mark.parametrize("kind", RECORDED)
def test_each_number_is_read_once(kind: str) -> None:
    series, expected = RECORDED[kind]
    for order in (series, series[::-1]):
        view = answer(*order)
        assert sorted(float(values[-1][1]) for _, _, values in view.series) == expected
        assert view.up is None or view.up[1] == 1


@pytest.mark.parametrize("relabelled", [False, True])
def test_a_server_is_down_when_every_scraper_says_so(relabelled: bool) -> None:
    job = "renamed" if relabelled else "a"
    view = answer(up("0", job="a"), up("0", 99.0, job="b"), running("4", 80.0, job=job))
    assert view.up == (100.0, 0.0)


REPLICAS = [
    [{"receive_replica": "0"}, {"receive_replica": "1"}, {"receive_replica": "2"}],
    [{"prometheus_replica": "a"}, {"prometheus_replica": "b"}],
    [{"job": "one"}, {"job": "two"}],
]


@pytest.mark.parametrize("replicas", REPLICAS, ids=lambda replicas: next(iter(replicas[0])))
@pytest.mark.parametrize("refused", [None, 400])
async def test_replicas_are_not_added_up(make, replicas: Any, refused: int | None) -> None:
    async with make(prometheus=True) as rig:
        rig.prometheus.replicas, rig.prometheus.refuse_names = replicas, refused
        rig.server.engine.running = 4
        await rig.ticks(6)
        seen = rig.service.loop.fleet[rig.name].observation
        assert (seen.running_requests, seen.errors) == (4.0, ())
        counts = next(c for c in seen.counters.by_budget if c.budget == 64)
        assert counts.request_rounds / counts.rounds == pytest.approx(4.0)
        assert counts.rounds <= rig.server.engine.counters.rounds[64]


async def test_a_replica_that_cannot_reach_a_server_does_not_make_it_down(make) -> None:
    async with make(prometheus=True) as rig:
        rig.prometheus.replicas, rig.prometheus.blind = [{"job": "a"}], [{"job": "b"}]
        assert (await rig.ticks(4)).reason is not Reason.SERVER_DOWN
        rig.prometheus.down.add(rig.name)
        assert (await rig.ticks()).reason is Reason.SERVER_DOWN


@pytest.mark.parametrize("status", [400, 422])
async def test_a_backend_that_refuses_name_matchers_is_asked_name_by_name(make, status) -> None:
    async with make(prometheus=True) as rig:
        rig.prometheus.refuse_names = status
        rig.server.engine.running = 8
        decision = await rig.ticks(5)
        assert decision.budget == 16
        assert not decision.explanation.faults
        queries = rig.prometheus.queries
        assert sum("__name__" in query for query in queries) == 1, "refused once is enough"
        each = 1 + sum(len(list(variants(name))) for name in NAMES)
        assert len(queries) == 1 + 5 * each
        observation = rig.service.loop.fleet[rig.name].observation
        assert observation.counters is not None
        assert observation.cost is not None


async def test_a_mistake_in_the_selector_is_no_reason_to_ask_name_by_name(make) -> None:
    async with make(prometheus=True) as rig:
        rig.prometheus.status, rig.prometheus.body = 400, '{"status": "error"}'
        assert (await rig.ticks()).reason is Reason.SOURCE_HTTP
        rig.prometheus.status, rig.prometheus.body = 200, None
        rig.prometheus.queries.clear()
        await rig.ticks(3)
        assert len(rig.prometheus.queries) == 3
