"""A fake Kubernetes API: EndpointSlices to list."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

SLICES = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


class FakeKubernetes:
    """`status` answers everything with that code; `hang` answers nothing."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.selectors: list[str] = []
        self.status = 200
        self.hang = False
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeKubernetes:
        app = web.Application(middlewares=[self._faulty])
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

    async def _list_slices(self, request: web.Request) -> web.Response:
        self.selectors.append(request.query["labelSelector"])
        body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList"}
        return web.json_response({**body, "metadata": {}, "items": self.slices})
