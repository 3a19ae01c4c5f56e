"""Which replica applies decisions: always this one, or the holder of a Kubernetes Lease.

A follower observes and decides like the leader, so that it can take over within a tick, but
applies nothing. Leading ends on this replica's own monotonic clock once the Lease was not renewed
for its duration, whatever the API server does, so that two replicas do not both lead for longer
than the clocks' drift. Does network I/O.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import aiohttp

from .kube import api_client, own_namespace, preload
from .settings import LeaderSettings

logger = logging.getLogger(__name__)


class Leader(Protocol):
    """Asked at every tick and every write."""

    @property
    def leads(self) -> bool: ...

    @property
    def holder(self) -> str | None:
        """Who leads, as far as this replica knows."""

    async def run(self) -> None:
        """Take part until cancelled, then give the leadership up."""


class SoleLeader:
    """The only replica."""

    def __init__(self, identity: str | None = None) -> None:
        self.holder: str | None = identity or socket.gethostname()

    leads = True

    async def run(self) -> None:
        await asyncio.Event().wait()


class LeaseLeader:
    """Holds, renews and releases one `coordination.k8s.io/v1` Lease.

    A write that meets another's (HTTP 409) loses. The holder is believed to hold until its record
    has not changed for `lease_s` on this replica's clock, so clock skew between replicas is
    harmless.
    """

    def __init__(
        self, settings: LeaderSettings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises KubernetesUnavailableError without the package."""
        preload()
        self._settings = settings
        self._monotonic = monotonic
        self.identity = settings.identity or socket.gethostname()
        self.holder: str | None = None
        self._leads_until = 0.0
        self._record: tuple[Any, ...] | None = None
        self._record_at = 0.0

    @property
    def leads(self) -> bool:
        return self._monotonic() < self._leads_until

    async def run(self) -> None:
        """Raises KubernetesUnavailableError if there is no client or configuration."""
        from kubernetes.aio import client

        namespace = own_namespace(self._settings.namespace)
        async with await api_client(self._settings.kubeconfig) as api:
            leases = client.CoordinationV1Api(api)
            try:
                while True:
                    await self._attempt(client, leases, namespace)
                    await asyncio.sleep(self._settings.retry_s)
            finally:
                await self._release(client, leases, namespace)

    async def _attempt(self, client: Any, leases: Any, namespace: str) -> None:
        """One try to take or renew the Lease; a failure leaves `leads` to run out by itself."""
        asked_at = self._monotonic()
        try:
            lease = await self._read(client, leases, namespace)
            if lease is None:
                body = client.V1Lease(
                    metadata=client.V1ObjectMeta(name=self._settings.lease), spec=self._spec(client)
                )
                await leases.create_namespaced_lease(
                    namespace, body, _request_timeout=self._settings.retry_s
                )
            elif self._may_take(lease):
                lease.spec = self._spec(client, lease.spec)
                await leases.replace_namespaced_lease(
                    self._settings.lease, namespace, lease, _request_timeout=self._settings.retry_s
                )
            else:
                self._leads_until = 0.0
                return
        except (client.ApiException, aiohttp.ClientError, TimeoutError, OSError) as error:
            if getattr(error, "status", None) == 409:
                self._leads_until = 0.0
            else:
                logger.warning("the Lease cannot be renewed: %r", error)
            return
        self.holder = self.identity
        self._leads_until = asked_at + self._settings.lease_s

    async def _read(self, client: Any, leases: Any, namespace: str) -> Any:
        try:
            return await leases.read_namespaced_lease(
                self._settings.lease, namespace, _request_timeout=self._settings.retry_s
            )
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise

    def _may_take(self, lease: Any) -> bool:
        spec = lease.spec
        record = (spec.holder_identity, spec.renew_time, spec.lease_transitions)
        if record != self._record:
            self._record, self._record_at = record, self._monotonic()
        self.holder = spec.holder_identity or None
        if self.holder in (None, self.identity):
            return True
        lasts = spec.lease_duration_seconds or self._settings.lease_s
        return self._monotonic() - self._record_at > lasts

    def _spec(self, client: Any, before: Any = None) -> Any:
        now = datetime.now(UTC)
        taken = before is None or before.holder_identity != self.identity
        transitions = 0 if before is None else before.lease_transitions or 0
        return client.V1LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=int(self._settings.lease_s),
            acquire_time=now if taken else before.acquire_time,
            renew_time=now,
            lease_transitions=transitions + (1 if taken and before is not None else 0),
        )

    async def _release(self, client: Any, leases: Any, namespace: str) -> None:
        """Let another replica take over at once."""
        if not self.leads:
            return
        self._leads_until = 0.0
        try:
            lease = await self._read(client, leases, namespace)
            if lease is not None and lease.spec.holder_identity == self.identity:
                lease.spec.holder_identity = ""
                await leases.replace_namespaced_lease(
                    self._settings.lease, namespace, lease, _request_timeout=self._settings.retry_s
                )
        except (client.ApiException, aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.warning("the Lease was not released and will run out: %r", error)
