"""Objects of our kinds on a real API server, to try the rules of their CRDs."""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from securebench.names import GROUP
from securebench.run.api.field_types import API_VERSION, VERSION

CRDS = Path(__file__).parents[2] / "crds"
Spec = dict[str, Any]


def with_value(spec: Spec, path: str, value: Any) -> Spec:
    """Return the spec with the value at a path such as ``pack.configMap.items[].path``."""
    result = copy.deepcopy(spec)
    *parents, last = path.replace("[]", ".0").split(".")
    node: Any = result
    for part in parents:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    if isinstance(node, list):
        node[int(last)] = value
    elif value is None:
        node.pop(last, None)
    else:
        node[last] = value
    return result


class OurObjects:
    """Creates and replaces objects of a kind in a namespace, by default without storing them."""

    def __init__(
        self, api: client.CustomObjectsApi, namespace: str, kind: str, plural: str
    ) -> None:
        self._api = api
        self._kind = kind
        self._place = (GROUP, VERSION, namespace, plural)

    def create(self, spec: Spec, *, store: bool = False, name: str = "case") -> dict[str, Any]:
        body = {
            "apiVersion": API_VERSION,
            "kind": self._kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        options = {} if store else {"dry_run": "All"}
        return self._api.create_namespaced_custom_object(
            *self._place, body, field_validation="Strict", **options
        )

    def replace(self, stored: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
        body = {**stored, "spec": spec}
        name = stored["metadata"]["name"]
        return self._api.replace_namespaced_custom_object(
            *self._place, name, body, dry_run="All", field_validation="Strict"
        )


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ApiException) as caught:
        call()
    assert caught.value.status == 422, caught.value.body
    return str(json.loads(caught.value.body)["message"])


def install_crd(extensions: client.ApiextensionsV1Api, plural: str) -> None:
    path = CRDS / f"{GROUP}_{plural}.yaml"
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    name = definition["metadata"]["name"]
    try:
        extensions.create_custom_resource_definition(definition)
    except ApiException as error:
        if error.status != 409:
            raise
        live = extensions.read_custom_resource_definition(name)
        definition["metadata"]["resourceVersion"] = live.metadata.resource_version
        extensions.replace_custom_resource_definition(name, definition)
    deadline = time.monotonic() + 30
    while not is_established(extensions.read_custom_resource_definition(name)):
        assert time.monotonic() < deadline, "the CRD is not established"
        time.sleep(0.1)


def is_established(definition: Any) -> bool:
    conditions = definition.status.conditions or ()
    return any(item.type == "Established" and item.status == "True" for item in conditions)


@contextmanager
def objects_of(api: client.ApiClient, kind: str, plural: str) -> Iterator[OurObjects]:
    """Install the CRD of a kind and yield its objects in a namespace of their own."""
    install_crd(client.ApiextensionsV1Api(api), plural)
    namespace = f"crd-rules-{uuid.uuid4().hex[:8]}"
    core = client.CoreV1Api(api)
    core.create_namespace({"metadata": {"name": namespace}})
    yield OurObjects(client.CustomObjectsApi(api), namespace, kind, plural)
    core.delete_namespace(namespace)
