"""Targets from the EndpointSlices of one Kubernetes Service. Does network I/O.

A pod is left out if it is being deleted or has never been ready. A pod that was ready and is not
ready now stays: it may be a server under high load, and then its budget is most important.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import aiohttp

from jetspec_controller.core import Fault
from jetspec_controller.http_client import FetchError
from jetspec_controller.kube import KubernetesUnavailableError, api_client, own_namespace, preload
from jetspec_controller.settings import KubernetesDiscovery as KubernetesDiscoverySettings
from jetspec_controller.settings import Settings
from jetspec_controller.sources.discovery import discovered
from jetspec_controller.targets import Origin, Target

TIMEOUT_S = 5.0


class KubernetesDiscovery:
    """Lists the slices again every `refresh_s`. The target's id is the pod's name."""

    origin = Origin.KUBERNETES

    def __init__(self, discovery: KubernetesDiscoverySettings, settings: Settings) -> None:
        """Raises KubernetesUnavailableError without the package."""
        preload()
        self._discovery = discovery
        self._settings = settings
        self._read_at: float | None = None
        self._targets: Sequence[Target] = ()

    async def targets(self, now: float) -> Sequence[Target]:
        if self._read_at is None or not 0 <= now - self._read_at < self._discovery.refresh_s:
            self._targets = tuple(self._parse(await self._slices()))
            self._read_at = now
        return self._targets

    async def _slices(self) -> Sequence[Any]:
        from kubernetes.aio import client

        try:
            namespace = own_namespace(self._discovery.namespace)
            async with await api_client(self._discovery.kubeconfig) as api:
                slices = await client.DiscoveryV1Api(api).list_namespaced_endpoint_slice(
                    namespace,
                    label_selector=f"kubernetes.io/service-name={self._discovery.service}",
                    _request_timeout=TIMEOUT_S,
                )
        except KubernetesUnavailableError as error:
            raise FetchError(Fault.DOWN, str(error)) from error
        except client.ApiException as error:
            fault = Fault.UNAUTHORISED if error.status in (401, 403) else Fault.HTTP
            raise FetchError(fault, f"HTTP {error.status} {error.reason}") from error
        except TimeoutError as error:
            raise FetchError(Fault.TIMEOUT, "the Kubernetes API did not answer") from error
        except aiohttp.ClientError as error:
            raise FetchError(Fault.DOWN, str(error)) from error
        return list(slices.items)

    def _parse(self, slices: Sequence[Any]) -> Iterator[Target]:
        known = {target.id for target in self._targets}
        for piece in slices:
            port = self._port(piece.ports or ())
            if port is None:
                continue
            for endpoint in piece.endpoints or ():
                conditions = endpoint.conditions
                name = endpoint.target_ref.name if endpoint.target_ref else None
                gone = bool(conditions and conditions.terminating)
                ready = conditions is None or conditions.ready is not False
                if gone or not endpoint.addresses or not (ready or name in known):
                    continue
                host = endpoint.addresses[0]
                address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                target = discovered(address, self._discovery.scheme, self.origin, self._settings)
                yield replace(target, id=name or target.id)

    def _port(self, ports: Sequence[Any]) -> int | None:
        wanted = self._discovery.port
        for port in ports:
            if wanted is None or wanted in (port.name, port.port):
                return int(port.port) if port.port else None
        return None
