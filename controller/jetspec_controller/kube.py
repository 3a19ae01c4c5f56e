"""A client for the Kubernetes API, from a kubeconfig or the pod's service account.

Needs the optional package `kubernetes`. Reads the service account's files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesUnavailableError(RuntimeError):
    """The package is not installed, or there is no usable configuration."""


def preload() -> None:
    """Import the client now. It is large, and a later import would block the event loop.

    Raises KubernetesUnavailableError.
    """
    try:
        import kubernetes.aio.client  # noqa: F401
    except ImportError as error:
        raise KubernetesUnavailableError(
            "the package `kubernetes` is not installed: pip install 'jetspec-controller[kubernetes]'"
        ) from error


async def api_client(kubeconfig: Path | None) -> Any:
    """A `kubernetes.aio.client.ApiClient`; close it after use. Raises KubernetesUnavailableError."""
    preload()
    from kubernetes.aio import client, config

    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)
        else:
            await config.load_kube_config(
                config_file=str(kubeconfig), client_configuration=configuration
            )
    except config.ConfigException as error:
        raise KubernetesUnavailableError(f"no usable Kubernetes configuration: {error}") from error
    return client.ApiClient(configuration)


def own_namespace(given: str | None) -> str:
    """The namespace given, else the pod's own. Raises KubernetesUnavailableError."""
    if given is not None:
        return given
    try:
        return NAMESPACE_FILE.read_text().strip()
    except OSError as error:
        raise KubernetesUnavailableError(
            f"namespace: none given, and {NAMESPACE_FILE} cannot be read"
        ) from error
