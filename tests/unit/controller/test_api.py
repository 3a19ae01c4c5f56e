"""Every route: what it answers, what it refuses, and how."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from fastapi import FastAPI
from jetspec_controller.api.app import create_app
from jetspec_controller.tokens import Tokens
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.anyio

TOKEN = {"Authorization": "Bearer 0123456789abcdef"}
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """Routes are built once; `serve` hangs a service of its own behind them."""
    return create_app(None)


@pytest.fixture
def serve(make, app: FastAPI, tmp_path: Path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ops 0123456789abcdef\n")

    @asynccontextmanager
    async def serving(**more: Any):
        settings = {"api": {"insecure": False, "token_file": tokens}, **more}
        async with make(settings=settings) as rig:
            app.state.service = rig.service
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://c") as client:
                yield rig, client

    return serving


def is_problem(response: httpx.Response, status: int, kind: str | None = None) -> bool:
    body = response.json()
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == PROBLEM
    assert body["status"] == status
    assert body["title"]
    if kind is not None:
        assert body["type"] == f"urn:jetspec-controller:{kind}"
    return True


async def test_probes(serve) -> None:
    async with serve() as (rig, client):
        assert is_problem(await client.get("/readyz"), 503, "nothing-observed")
        assert (await client.get("/livez")).json() == {"status": "ok"}
        await rig.ticks(2)
        assert (await client.get("/readyz")).json() == {"status": "ok"}
        rig.service.loop.last_tick = time.monotonic() - 31
        assert is_problem(await client.get("/livez"), 503, "loop-stalled")


async def test_metrics_and_version(serve) -> None:
    async with serve() as (rig, client):
        await rig.ticks(2)
        text = (await client.get("/metrics")).text
        names = {family.name for family in text_string_to_metric_families(text)}
        assert {"jetspec_controller_budget_current", "jetspec_controller_decisions"} <= names
        assert all(name.startswith("jetspec_controller_") for name in names)
        version = (await client.get("/version")).json()
        assert version["config"] == rig.service.settings.digest


async def test_targets_and_their_explanation(serve) -> None:
    async with serve() as (rig, client):
        assert (await client.get("/v1/targets")).json()["targets"] == []
        rig.server.engine.running = 8
        await rig.ticks(4)
        (summary,) = (await client.get("/v1/targets")).json()["targets"]
        assert (summary["id"], summary["budget"], summary["mode"]) == (rig.name, 16, "model")
        detail = (await client.get(f"/v1/targets/{rig.name}")).json()
        assert detail["decision"]["budget"] == 16
        chosen = [c for c in detail["decision"]["explanation"]["candidates"] if c["budget"] == 16]
        assert chosen[0]["tau"] == pytest.approx(rig.server.engine.tau(16), rel=0.05)
        assert detail["last_apply"]["outcome"] == "applied"
        (speed,) = [s for s in detail["speed"] if s["budget"] == 16]
        engine = rig.server.engine
        tokens_per_second = 8 * engine.tau(16) / engine.cost(8 * 16)
        assert speed["tokens_per_second"] == pytest.approx(tokens_per_second, rel=0.01)
        assert is_problem(await client.get("/v1/targets/nobody:1"), 404, "unknown-target")
        assert is_problem(await client.get("/v1/targets/%00"), 422, "invalid-request")


async def test_decisions_newest_first(serve) -> None:
    async with serve() as (rig, client):
        await rig.ticks(5)
        decisions = (await client.get("/v1/decisions")).json()["decisions"]
        times = [entry["at"] for entry in decisions]
        assert times == sorted(times, reverse=True)
        assert len(times) == 5
        query = {"since": times[2], "target": rig.name}
        since = (await client.get("/v1/decisions", params=query)).json()["decisions"]
        assert [entry["at"] for entry in since] == times[:2]
        limited = (await client.get("/v1/decisions?limit=1")).json()["decisions"]
        assert [entry["id"] for entry in limited] == [decisions[0]["id"]]
        other = (await client.get("/v1/decisions?target=other")).json()["decisions"]
        assert other == []
        changes = (await client.get("/v1/decisions?changes=true")).json()["decisions"]
        assert all(entry["result"] == "applied" for entry in changes)
        for bad in ("limit=0", "limit=x", "since=nan", "since=-1", "target=a/b"):
            assert is_problem(await client.get(f"/v1/decisions?{bad}"), 422)


async def test_pin_and_unpin(serve) -> None:
    async with serve() as (rig, client):
        await rig.ticks(2)
        path = f"/v1/targets/{rig.name}/pin"
        pin = {"budget": 128, "ttl_s": 60, "reason": "a test"}
        put = await client.put(path, json=pin, headers=TOKEN)
        assert put.status_code == 200
        assert put.json()["actor"] == "ops"
        decision = await rig.ticks()
        assert (decision.reason, rig.server.engine.budget) == ("pinned", 128)
        assert rig.metric("budget_pinned", target=rig.name) == 128
        summary = (await client.get("/v1/targets")).json()["targets"][0]
        assert (summary["mode"], summary["pin"]["budget"]) == ("pinned", 128)
        assert (await client.delete(path, headers=TOKEN)).status_code == 204
        assert is_problem(await client.delete(path, headers=TOKEN), 404, "no-pin")
        assert (await rig.ticks()).reason != "pinned"
        events = [e for e in rig.events() if e["event"].startswith("pin")]
        assert [(e["event"], e["actor"]) for e in events] == [
            ("pin_set", "ops"),
            ("pin_removed", "ops"),
        ]


async def test_pin_expires_and_survives_a_restart(serve, make) -> None:
    async with serve() as (rig, client):
        await rig.ticks(2)
        path = f"/v1/targets/{rig.name}/pin"
        await client.put(path, json={"budget": 128, "ttl_s": 20}, headers=TOKEN)
        async with make(adopt=rig.servers, clock=rig.clock) as successor:
            await successor.ticks(3)
            assert rig.server.engine.budget == 128
            decision = await successor.ticks(8)
            assert decision.reason != "pinned"
            assert "pin_expired" in [event["event"] for event in successor.events()]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"budget": 0, "ttl_s": 60},
        {"budget": 1.5, "ttl_s": 60},
        {"budget": 512, "ttl_s": 60},
        {"budget": 16, "ttl_s": 0},
        {"budget": 16, "ttl_s": "inf"},
        {"budget": 16, "ttl_s": 1e9},
        {"budget": 16, "ttl_s": 60, "reason": "x" * 501},
        {"budget": 16, "ttl_s": 60, "extra": 1},
        [],
        "text",
    ],
)
async def test_pins_that_are_refused(serve, body: Any) -> None:
    async with serve() as (rig, client):
        await rig.ticks(2)
        path = f"/v1/targets/{rig.name}/pin"
        assert is_problem(await client.put(path, json=body, headers=TOKEN), 422)
        assert not rig.service.state.pins


WRITES = [
    ("PUT", "/v1/targets/{}/pin"),
    ("DELETE", "/v1/targets/{}/pin"),
    ("POST", "/v1/pause"),
    ("POST", "/v1/resume"),
    ("POST", "/v1/config/reload"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_writes_need_a_token(serve, method: str, path: str) -> None:
    async with serve() as (rig, client):
        await rig.ticks()
        url = path.format(rig.name)
        json = {"budget": 16, "ttl_s": 60} if method == "PUT" else None
        for sent in (None, "Bearer wrong", "Basic b3BzOng=", "Bearer", "0123456789abcdef"):
            headers = {} if sent is None else {"Authorization": sent}
            response = await client.request(method, url, headers=headers, json=json)
            assert is_problem(response, 401, "token-required")
            assert response.headers["www-authenticate"] == "Bearer"
            assert rig.events()[-1]["event"] == "write_denied"
            assert not rig.service.state.pins


async def test_pause_and_resume(serve, make) -> None:
    async with serve() as (rig, client):
        await rig.ticks(3)
        assert (await client.post("/v1/pause", headers=TOKEN)).json() == {"paused": True}
        rig.server.engine.running = 8
        before = rig.server.calls["/set_internal_state"]
        decision = await rig.ticks(4)
        assert decision.explanation.best_budget == 16
        assert rig.server.calls["/set_internal_state"] == before
        assert rig.metric("paused") == 1
        assert rig.metric("mode", target=rig.name, mode="paused") == 1
        async with make(adopt=rig.servers, clock=rig.clock) as successor:
            assert successor.service.state.paused
        assert (await client.post("/v1/resume", headers=TOKEN)).json() == {"paused": False}
        await rig.ticks(2)
        assert rig.server.engine.budget == 16


async def test_reload_through_the_api(serve, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("policy: {max_budget: 32}\napi: {history: 5}\n")
    async with serve() as (rig, client):
        rig.service._config_path = config
        answer = (await client.post("/v1/config/reload", headers=TOKEN)).json()
        assert answer == {"config": rig.service.settings.digest, "restart_needed": ["api.history"]}
        config.write_text("policy: {max_budget: -1}\n")
        response = await client.post("/v1/config/reload", headers=TOKEN)
        assert is_problem(response, 422, "invalid-config")
        assert "policy.max_budget" in response.json()["detail"]


async def test_a_rotated_token_file_counts_after_a_reload(serve, tmp_path: Path) -> None:
    async with serve() as (rig, client):
        (tmp_path / "tokens").write_text("new 0123456789abcdeX\n")
        await rig.service.reload("test")
        assert is_problem(await client.post("/v1/pause", headers=TOKEN), 401)
        new = {"Authorization": "Bearer 0123456789abcdeX"}
        assert (await client.post("/v1/pause", headers=new)).status_code == 200


async def test_without_tokens_other_pages_may_not_write(serve) -> None:
    async with serve(api={"insecure": True, "token_file": None}) as (rig, client):
        await rig.ticks()
        foreign = {"Origin": "http://evil.example"}
        response = await client.post("/v1/pause", headers=foreign)
        assert is_problem(response, 403, "foreign-origin")
        assert not rig.service.state.paused
        for own in ({}, {"Origin": "http://c"}):
            assert (await client.post("/v1/pause", headers=own)).status_code == 200


async def test_full_disk_refuses_a_pin(serve) -> None:
    async with serve() as (rig, client):
        await rig.ticks()
        rig.service.state._connection.execute("PRAGMA query_only=1")
        path = f"/v1/targets/{rig.name}/pin"
        response = await client.put(path, json={"budget": 16, "ttl_s": 60}, headers=TOKEN)
        assert is_problem(response, 503, "state-unavailable")
        assert response.headers["retry-after"] == "30"


async def test_what_if(serve) -> None:
    async with serve() as (rig, client):
        await rig.ticks(6)
        asked = {"target": rig.name, "running_requests": [1, 8, 64]}
        outlooks = (await client.post("/v1/simulate", json=asked)).json()["outlooks"]
        best = [outlook["best_budget"] for outlook in outlooks]
        assert best == sorted(best, reverse=True)
        assert best[-1] < best[0]
        asked["policy"] = {"min_budget": 32}
        outlooks = (await client.post("/v1/simulate", json=asked)).json()["outlooks"]
        assert min(outlook["best_budget"] for outlook in outlooks) == 32
        assert rig.server.calls["/set_internal_state"] == len(rig.server.applied)
        bad = {**asked, "policy": {"max_budget": 0}}
        assert is_problem(await client.post("/v1/simulate", json=bad), 422, "invalid-policy")
        unknown = {**asked, "target": "nobody"}
        assert is_problem(await client.post("/v1/simulate", json=unknown), 404, "unknown-target")
        many = {**asked, "running_requests": [1] * 65}
        assert is_problem(await client.post("/v1/simulate", json=many), 422)


async def test_other_paths_methods_and_sizes(serve) -> None:
    async with serve() as (_, client):
        assert is_problem(await client.get("/nowhere"), 404)
        assert is_problem(await client.delete("/v1/targets"), 405)
        torn = await client.post(
            "/v1/simulate", content=b"7\xef", headers={"Content-Type": "application/json"}
        )
        assert is_problem(torn, 400)
        big = await client.post("/v1/simulate", content=b"x" * 100_000, headers=TOKEN)
        assert is_problem(big, 413)


async def test_an_error_of_ours_tells_nothing_but_that(serve, monkeypatch) -> None:
    async with serve() as (_, client):
        monkeypatch.setattr(Tokens, "actor", lambda *_: 1 / 0)
        response = await client.post("/v1/pause", headers=TOKEN)
        assert is_problem(response, 500)
        assert "ZeroDivision" not in response.text


async def test_nan_metrics_come_out_as_null(serve) -> None:
    async with serve(scrape={"loads": False}) as (rig, client):
        rig.server.faults.nan.add("sglang:num_running_reqs")
        await rig.ticks(2)
        (summary,) = (await client.get("/v1/targets")).json()["targets"]
        assert summary["running_requests"] is None
        assert (await client.get(f"/v1/targets/{rig.name}")).status_code == 200


async def test_openapi_describes_every_route_with_problems(serve) -> None:
    async with serve() as (_, client):
        api = (await client.get("/openapi.json")).json()
        assert {
            "/livez",
            "/readyz",
            "/metrics",
            "/version",
            "/v1/targets",
            "/v1/targets/{target_id}",
            "/v1/targets/{target_id}/pin",
            "/v1/decisions",
            "/v1/pause",
            "/v1/resume",
            "/v1/simulate",
            "/v1/config/reload",
        } == set(api["paths"])
        assert api["components"]["schemas"]["PinRequest"]["examples"]
        put = api["paths"]["/v1/targets/{target_id}/pin"]["put"]
        assert put["security"]
        assert PROBLEM in put["responses"]["503"]["content"]


async def test_every_answer_has_an_example_that_fits_its_schema(app: FastAPI) -> None:
    api = app.openapi()
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            good = [status for status in operation["responses"] if status < "300"]
            assert good, f"{method} {path}"
            for status, response in operation["responses"].items():
                for content in response.get("content", {}).values():
                    assert "example" in content, f"{method} {path} {status}"
                    schema = {**content["schema"], "components": api["components"]}
                    jsonschema.validate(content["example"], schema)


async def test_page_and_its_files_are_ours(serve) -> None:
    async with serve() as (_, client):
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert "http://" not in page.text
        assert "https://" not in page.text
        for name in ("app.js", "charts.js", "style.css", "plotly.js"):
            first = await client.get(f"/page/{name}")
            assert first.status_code == 200
            again = await client.get(
                f"/page/{name}", headers={"If-None-Match": first.headers["etag"]}
            )
            assert (again.status_code, again.content) == (304, b"")
            plain = await client.get(f"/page/{name}", headers={"Accept-Encoding": "identity"})
            assert plain.content == first.content
        assert is_problem(await client.get("/page/secrets"), 404)
