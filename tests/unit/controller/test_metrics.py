"""The controller's metrics are those of the list, and the floor follows policy and tiers."""

from __future__ import annotations

import typing

import pytest
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.metric_list import METRICS

pytestmark = pytest.mark.anyio


def test_attributes_and_exported_series_are_the_list() -> None:
    kinds = {metric.name: metric.kind for metric in METRICS}
    annotated = typing.get_type_hints(ControllerMetrics)
    assert {name: kind.__name__.lower() for name, kind in annotated.items()} == kinds
    metrics = ControllerMetrics()
    exported = {family.name: family.documentation for family in metrics.registry.collect()}
    assert exported == {metric.exported.removesuffix("_total"): metric.text for metric in METRICS}
    for metric in METRICS:
        assert getattr(metrics, metric.name)._labelnames == metric.labels


@pytest.mark.parametrize(
    ("policy", "floor"), [({}, 1), ({"min_budget": 16}, 16), ({"min_budget": 17}, 32)]
)
async def test_the_floor_is_the_smallest_budget_allowed(make, policy, floor) -> None:
    async with make(settings={"policy": policy}) as rig:
        await rig.ticks()
        tiers = rig.service.loop.fleet[rig.name].read_back.tiers
        assert floor in tiers
        assert rig.metric("budget_floor", target=rig.name) == floor


async def test_the_floor_goes_with_its_server(make) -> None:
    async with make() as rig:
        await rig.ticks()
        rig.service.metrics.forget(rig.name)
        assert rig.metric("budget_floor", target=rig.name) is None


async def test_counters_of_a_server_start_at_zero(make) -> None:
    async with make(settings={"policy": {"governor": "off"}}) as rig:
        await rig.ticks()
        assert rig.metric("drift_total", target=rig.name) == 0
        assert rig.metric("decision_errors_total", target=rig.name) == 0
        assert rig.metric("applies_total", target=rig.name, result="applied") == 0
