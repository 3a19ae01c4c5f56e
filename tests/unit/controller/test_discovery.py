"""Where targets come from, and that a place that fails keeps its last list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from jetspec_controller.exporter import ControllerMetrics
from jetspec_controller.http_client import FetchError, HttpClient
from jetspec_controller.settings import load
from jetspec_controller.sources import MergedDiscovery, StaticDiscovery
from jetspec_controller.sources.file_discovery import FileDiscovery
from jetspec_controller.sources.http_discovery import PrometheusUpDiscovery, RouterWorkers
from jetspec_controller.sources.kubernetes_discovery import KubernetesDiscovery
from jetspec_controller.targets import Origin, Target

from tests.support.fake_kubernetes import FakeKubernetes

pytestmark = pytest.mark.anyio


def settings(**more: Any) -> Any:
    return load(None, {"targets": ["http://10.0.0.1:30000"], **more})


async def answers(body: Any) -> tuple[web.AppRunner, str]:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def test_static_targets_take_shared_keys_and_their_own(tmp_path: Path) -> None:
    wanted = settings(
        targets=[
            {"url": "http://a:30000/prefix/", "id": "one", "admin_key": {"env": "OWN"}},
            {"url": "https://b"},
        ],
        control={"admin_key": {"env": "SHARED"}},
    )
    one, two = await StaticDiscovery(wanted).targets(0.0)
    assert (one.id, one.url, one.instance) == ("one", "http://a:30000/prefix", "a:30000")
    assert one.admin_key.env == "OWN"
    assert (two.id, two.admin_key.env) == ("b:443", "SHARED")


async def test_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    path.write_text(json.dumps([{"targets": ["a:1"], "labels": {"id": "x", "instance": "i"}}]))
    wanted = settings(discovery={"file": {"path": path}})
    place = FileDiscovery(wanted.discovery.file, wanted)
    (target,) = await place.targets(0.0)
    assert (target.id, target.url, target.instance) == ("x", "http://a:1", "i")
    path.write_text("- targets: [a:1, 'https://b:2/p']\n")
    assert [t.url for t in await place.targets(0.0)] == ["http://a:1", "https://b:2/p"]
    for broken in ("- {targets: ", "targets: [a:1]", "- 3", "- {labels: {}}", "- {targets: [5]}"):
        path.write_text(broken)
        with pytest.raises(FetchError):
            await place.targets(0.0)
    path.unlink()
    with pytest.raises(FetchError):
        await place.targets(0.0)


async def test_prometheus_up_names_every_instance_up_or_not() -> None:
    series = [{"metric": {"instance": i}, "value": [0, v]} for i, v in (("a:1", "1"), ("b:2", "0"))]
    body = {"status": "success", "data": {"resultType": "vector", "result": series}}
    runner, url = await answers(body)
    wanted = settings(prometheus={"url": url}, discovery={"prometheus": {}})
    async with HttpClient() as client:
        place = PrometheusUpDiscovery(
            client, wanted.prometheus, wanted.discovery.prometheus, wanted
        )
        assert [t.url for t in await place.targets(0.0)] == ["http://a:1", "http://b:2"]
        await runner.cleanup()
        assert len(await place.targets(14.0)) == 2, "cached"
        with pytest.raises(FetchError):
            await place.targets(16.0)


WORKERS = {
    "workers": [
        {"url": "http://w1:1", "worker_type": "regular", "connection_mode": "HTTP"},
        {"url": "http://w2:1", "worker_type": "decode", "is_healthy": False},
        {"url": "http://w3:1", "worker_type": "prefill", "connection_mode": "HTTP"},
        {"url": "grpc://w4:1", "worker_type": "regular", "connection_mode": "GRPC"},
        {"url": "http://w5:1@0", "worker_type": "regular", "connection_mode": "HTTP"},
        {"url": "http://w5:1@1", "worker_type": "regular", "connection_mode": "HTTP"},
    ],
    "total": 6,
}


async def test_router_gives_the_workers_that_decode() -> None:
    runner, url = await answers(WORKERS)
    wanted = settings(discovery={"router": {"url": url}})
    async with HttpClient() as client:
        place = RouterWorkers(client, wanted.discovery.router, wanted)
        targets = await place.targets(0.0)
    await runner.cleanup()
    assert [t.url for t in targets] == ["http://w1:1", "http://w2:1", "http://w5:1"]
    assert url not in {t.url for t in targets}


@pytest.mark.parametrize("body", [[], {}, {"workers": 3}, {"workers": ["x"]}, {"workers": [{}]}])
async def test_router_that_answers_nonsense(body: Any) -> None:
    runner, url = await answers(body)
    wanted = settings(discovery={"router": {"url": url}})
    async with HttpClient() as client:
        with pytest.raises(FetchError):
            await RouterWorkers(client, wanted.discovery.router, wanted).targets(0.0)
    await runner.cleanup()


def endpoint(name: str, address: str, **conditions: bool) -> dict[str, Any]:
    return {
        "addresses": [address],
        "conditions": conditions,
        "targetRef": {"kind": "Pod", "name": name},
    }


def endpoint_slice(*endpoints: dict[str, Any], ports: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": "IPv4",
        "metadata": {"name": "s"},
        "endpoints": list(endpoints),
        "ports": ports,
    }


async def test_kubernetes_endpoints(tmp_path: Path) -> None:
    ports = [{"name": "http", "port": 30000}, {"name": "other", "port": 9}]
    async with FakeKubernetes() as api:
        api.slices = [
            endpoint_slice(
                endpoint("sglang-0", "10.1.0.1", ready=True),
                endpoint("sglang-1", "10.1.0.2", ready=False),
                endpoint("sglang-2", "10.1.0.3", ready=False, terminating=True),
                endpoint("sglang-3", "fd00::1", ready=True),
                ports=ports,
            )
        ]
        wanted = settings(
            discovery={
                "kubernetes": {
                    "service": "sglang",
                    "namespace": "serving",
                    "port": "http",
                    "kubeconfig": api.kubeconfig(tmp_path),
                }
            }
        )
        place = KubernetesDiscovery(wanted.discovery.kubernetes, wanted)
        targets = await place.targets(0.0)
        assert [(t.id, t.url) for t in targets] == [
            ("sglang-0", "http://10.1.0.1:30000"),
            ("sglang-3", "http://[fd00::1]:30000"),
        ]
        assert api.selectors == ["kubernetes.io/service-name=sglang"]
        api.slices[0]["endpoints"][0]["conditions"]["ready"] = False
        assert len(await place.targets(11.0)) == 2, "a server that was ready stays"
        for status in (403, 500):
            api.status = status
            with pytest.raises(FetchError):
                await place.targets(30.0)


class Place:
    def __init__(self, origin: Origin, *targets: Target) -> None:
        self.origin, self.list, self.fails = origin, list(targets), False

    async def targets(self, now: float) -> list[Target]:
        if self.fails:
            from jetspec_controller.core import Fault

            raise FetchError(Fault.DOWN, "gone")
        return self.list


async def test_merge_keeps_what_a_failing_place_last_named() -> None:
    a, b = Target("a", "http://a:1", "a:1"), Target("b", "http://b:1", "b:1")
    twin = Target("other-name", "http://a:1", "a:1")
    static, file = Place(Origin.STATIC, a), Place(Origin.FILE, twin, b)
    metrics = ControllerMetrics()
    merged = MergedDiscovery([static, file], metrics, settings().policy_keys)
    assert await merged.targets(0.0) == (a, b)
    file.fails = True
    assert await merged.targets(1.0) == (a, b)
    assert merged.problems == {Origin.FILE: "down: gone"}
    name = "jetspec_controller_discovery_errors_total"
    assert metrics.registry.get_sample_value(name, {"origin": "file"}) == 1


async def test_fleet_follows_the_list(make, tmp_path: Path) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text("[]")
    async with make(servers=2) as rig:
        first, second = (s.url.removeprefix("http://") for s in rig.servers)
        wanted = settings(discovery={"file": {"path": path}})
        rig.service.loop.discovery = MergedDiscovery(
            [FileDiscovery(wanted.discovery.file, wanted)],
            rig.service.metrics,
            wanted.policy_keys,
        )
        path.write_text(json.dumps([{"targets": [first, second]}]))
        await rig.ticks(2)
        assert rig.metric("targets") == 2
        assert rig.metric("target_up", target=second) == 1
        path.write_text(json.dumps([{"targets": [first], "labels": {}}]))
        await rig.ticks(2)
        assert list(rig.service.loop.fleet) == [first]
        assert rig.metric("target_up", target=second) is None, "its series are gone"
        removed = [e["target"] for e in rig.events() if e["event"] == "target_removed"]
        assert removed == [second]


async def test_a_discovered_target_has_the_policy_of_the_first_pattern_that_fits() -> None:
    own = Target("own", "http://a:1", "a:1", policy={"max_budget": 8})
    found = [
        Target(name, f"http://{name}", name, Origin.KUBERNETES)
        for name in ("big-0", "[fd00::1]:2", "small-0")
    ]
    wanted = settings(
        target_policies={
            "[fd00::1]:2": {"max_budget": 16},
            "big-*": {"max_budget": 64},
            "*": {"max_budget": 32},
        }
    )
    places = [Place(Origin.STATIC, own), Place(Origin.KUBERNETES, *found)]
    merged = MergedDiscovery(places, ControllerMetrics(), wanted.policy_keys)
    policies = [target.policy["max_budget"] for target in await merged.targets(0.0)]
    assert policies == [8, 64, 16, 32]
