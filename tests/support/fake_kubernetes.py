"""A fake Kubernetes API: Leases with optimistic locking, and EndpointSlices to list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


class FakeKubernetes:
    """`status` answers everything with that code; `hang` answers nothing."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.slices: list[dict[str, Any]] = []
        self.selectors: list[str] = []
        self.status = 200
        self.hang = False
        self._version = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeKubernetes:
        app = web.Application(middlewares=[self._faulty])
        app.router.add_get(LEASES + "/{name}", self._get)
        app.router.add_post(LEASES, self._create)
        app.router.add_put(LEASES + "/{name}", self._replace)
        app.router.add_get(SLICES, self._list_slices)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """A file that points a client here."""
        name = "fake"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": name, "user": {"token": "t"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    @web.middleware
    async def _faulty(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.hang:
            await asyncio.sleep(3600)
        if self.status != 200:
            return self._error(self.status)
        return await handler(request)

    def _error(self, code: int) -> web.Response:
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        return web.json_response(body, status=code)

    def _stored(self, lease: dict[str, Any]) -> web.Response:
        self._version += 1
        name = lease["metadata"]["name"]
        lease["metadata"]["resourceVersion"] = str(self._version)
        self.leases[name] = lease
        return web.json_response(lease)

    async def _get(self, request: web.Request) -> web.Response:
        lease = self.leases.get(request.match_info["name"])
        return self._error(404) if lease is None else web.json_response(lease)

    async def _create(self, request: web.Request) -> web.Response:
        lease = await request.json()
        if lease["metadata"]["name"] in self.leases:
            return self._error(409)
        return self._stored(lease)

    async def _replace(self, request: web.Request) -> web.Response:
        lease = await request.json()
        held = self.leases[request.match_info["name"]]
        if lease["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            return self._error(409)
        return self._stored(lease)

    async def _list_slices(self, request: web.Request) -> web.Response:
        self.selectors.append(request.query["labelSelector"])
        body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList"}
        return web.json_response({**body, "metadata": {}, "items": self.slices})
