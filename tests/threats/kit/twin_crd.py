"""A copy of our CRD under another group, without any rule: what its rules are worth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from securebench.run.api.crd import benchmark_run_crd
from securebench.run.api.field_types import KIND, PLURAL, VERSION
from support.release import CommandError, Raw, Release, call
from support.waiting import KUBECTL_TIMEOUT

GROUP = "twins.securebench.dev"
RULES = ("x-kubernetes-validations", "pattern", "maxLength", "minLength")


def unruled(schema: Any) -> Any:
    """Return a schema without its rules."""
    if isinstance(schema, Mapping):
        return {key: unruled(value) for key, value in schema.items() if key not in RULES}
    return [unruled(item) for item in schema] if isinstance(schema, list) else schema


@contextmanager
def twin_crd() -> Iterator[None]:
    """Have the API server know the copy; it is removed afterwards."""
    crd: Raw = unruled(json.loads(json.dumps(benchmark_run_crd())))
    name = f"{PLURAL}.{GROUP}"
    crd["metadata"] = {"name": name}
    crd["spec"]["group"] = GROUP
    crd["spec"]["names"] = {
        "kind": KIND,
        "plural": PLURAL,
        "singular": "twinrun",
        "listKind": "TwinRunList",
    }
    call("kubectl", "create", "-f", "-", stdin=json.dumps(crd).encode())
    try:
        call("kubectl", "wait", "--for=condition=Established", f"crd/{name}", KUBECTL_TIMEOUT)
        yield
    finally:
        call("kubectl", "delete", "crd", name)


def twin_run(name: str, spec: Mapping[str, Any]) -> Raw:
    """Return a run of the copy."""
    metadata = {"name": name}
    api = f"{GROUP}/{VERSION}"
    return {"apiVersion": api, "kind": KIND, "metadata": metadata, "spec": dict(spec)}


def refusal(release: Release, item: Raw) -> str:
    """Return why the API server would not create an object, empty where it would."""
    body = json.dumps(item).encode()
    try:
        release.kubectl("create", "--dry-run=server", "-f", "-", stdin=body)
    except CommandError as error:
        return str(error)
    return ""
