"""Runs as the API server shows them, over one connection.

For whoever asks again and again: a ``kubectl`` for each question takes a tenth of a second of a
processor that the Pods need.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kubernetes import client, config

from securebench.names import GROUP
from securebench.run.api.field_types import PLURAL, VERSION

Raw = dict[str, Any]


def benchmark_run(namespace: str, name: str) -> Raw:
    """Return a BenchmarkRun.

    Raises:
        client.ApiException: The API server refused.
    """
    found: Raw = _objects().get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, name)
    return found


def benchmark_runs(namespace: str) -> list[Raw]:
    """Return all BenchmarkRuns of a namespace.

    Raises:
        client.ApiException: The API server refused.
    """
    found: Raw = _objects().list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL)
    items: list[Raw] = found["items"]
    return items


@cache
def _objects() -> client.CustomObjectsApi:
    return client.CustomObjectsApi(config.new_client_from_config())
