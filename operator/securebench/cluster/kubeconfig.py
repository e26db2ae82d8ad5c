"""Which cluster is meant, and with which credentials: inside a Pod, or by the kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

from securebench.errors import ConfigError

_KUBECONFIG = "KUBECONFIG"


def context_name(context: str | None = None) -> str:
    """Return the name of the context in use; empty inside a Pod."""
    if context is not None:
        return context
    try:
        _, active = list_kube_config_contexts(_kubeconfig())  # type: ignore[no-untyped-call]
    except (ConfigException, ConfigError):
        return ""
    return str(active["name"])


def default_namespace(context: str | None = None) -> str:
    """Return the namespace of a context of the kubeconfig, or ``default``.

    Raises:
        ConfigError: There is no such context.
    """
    try:
        contexts, active = list_kube_config_contexts(_kubeconfig())  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
    for entry in [active] if context is None else contexts:
        if context in (None, entry["name"]):
            return str(entry["context"].get("namespace") or "default")
    raise ConfigError(f"the kubeconfig has no context {context!r}")


async def load_configuration(context: str | None) -> Configuration:
    """Return how the API server is reached and with which credentials.

    Args:
        context: Context of the kubeconfig; None takes the service account inside a Pod (unless
            KUBECONFIG is set), else the current context.

    Raises:
        ConfigError: There is no usable configuration.
    """
    configuration = Configuration()
    if context is None and _KUBECONFIG not in os.environ:
        try:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except ConfigException:
            pass
        else:
            return configuration
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            _kubeconfig(),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
    except ConfigException as error:
        raise ConfigError(f"the kubeconfig cannot be used: {error}") from error
    return configuration


def _kubeconfig() -> str:
    """Return the kubeconfig paths, joined as in KUBECONFIG; at least one of them exists."""
    paths = os.environ.get(_KUBECONFIG) or "~/.kube/config"
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        raise ConfigError(f"no cluster: not inside a Pod, and there is no kubeconfig at {paths}")
    return paths
