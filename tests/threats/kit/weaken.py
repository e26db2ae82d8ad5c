"""Admission policies that take one control off the Pods of a twin."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from support.release import CommandError, Raw, Release, call
from threats.kit.batch import Batch, Weakening

API = "admissionregistration.k8s.io/v1"
RUN_LABEL = "securebench.dev/run"
MARK = "threats.securebench.dev/weakened"
POLICY_SECONDS = 60
"""How long the API server may take to apply a new policy."""


def weaken(release: Release, batch: Batch) -> None:
    """Take a control off the Pods that a batch's run will have, and wait until that holds."""
    assert batch.weakening is not None
    for item in policy(release.namespace, batch.name, batch.weakening):
        call("kubectl", "create", "-f", "-", stdin=json.dumps(item).encode())
    _wait_until_applied(release, batch.name, batch.weakening)


def remove(namespace: str) -> None:
    """Remove the policies of a namespace's twins."""
    kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    call("kubectl", "delete", kinds, "-l", f"{MARK}={namespace}", "--wait=false")


def ignore_policies(release: Release, run: str) -> None:
    """Have the network policies of a run select nothing, as with a plugin that ignores them."""
    patch = (
        '[JSONPatch{op: "replace", path: "/spec/podSelector", value:'
        ' {"matchLabels": {"threats.securebench.dev/nobody": "here"}}}]'
    )
    marking = _MARKING.replace("annotations", "labels")
    name, kind = f"{release.namespace}-{run}-policies", ("networking.k8s.io", "networkpolicies")
    for item in _bound(release.namespace, name, kind, _of_run(run), (patch, marking)):
        call("kubectl", "create", "-f", "-", stdin=json.dumps(item).encode())
    metadata = {"name": "probe", "labels": {RUN_LABEL: run}}
    kind_words = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    probe = {**kind_words, "metadata": metadata, "spec": {"podSelector": {}}}
    _wait_until_marked(release, name, probe)


def policy(namespace: str, run: str, weakening: Weakening) -> Sequence[Raw]:
    """Return the policy and its binding for one run in one namespace."""
    chosen = (
        f"{_of_run(run)} && "
        f"object.metadata.?labels['securebench.dev/role'].orValue('') == '{weakening.role}'"
    )
    expressions = (*weakening.patches, _MARKING)
    return _bound(namespace, f"{namespace}-{run}", ("", "pods"), chosen, expressions)


def _of_run(run: str) -> str:
    return f"object.metadata.?labels['{RUN_LABEL}'].orValue('') == '{run}'"


def _bound(
    namespace: str, name: str, kind: tuple[str, str], chosen: str, expressions: Sequence[str]
) -> Sequence[Raw]:
    """Return an admission policy and its binding.

    Args:
        namespace: Where it applies.
        name: Of both objects.
        kind: API group and resource of what is changed.
        chosen: CEL expression that says which objects.
        expressions: CEL expressions of type JSONPatch.
    """
    metadata = {"name": name, "labels": {MARK: namespace}}
    group, resource = kind
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": [resource],
                }
            ],
        },
        "matchConditions": [{"name": "of-the-twin", "expression": chosen}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
            for expression in expressions
        ],
    }
    binding = {"policyName": metadata["name"]}
    return (
        {"apiVersion": API, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": API,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": binding,
        },
    )


_MARKING = (
    f'[JSONPatch{{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("{MARK}"),'
    ' value: "true"}]'
)


def _wait_until_applied(release: Release, run: str, weakening: Weakening) -> None:
    name = f"{release.namespace}-{run}"
    _wait_until_marked(release, name, _probe(run, weakening), f"probe-{run}")


def _wait_until_marked(release: Release, name: str, item: Raw, refused: str = "") -> None:
    """Wait until an admission policy changes an object, or breaks what is ``refused`` then."""
    probe = json.dumps(item).encode()
    deadline = time.monotonic() + POLICY_SECONDS
    while True:
        words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        try:
            made = json.loads(release.kubectl(*words, stdin=probe))
        except CommandError as error:
            # A patch may not fit the probe: then the policy is in force too.
            names = (MARK, name, f'"{refused}" is invalid')
            if not any(each in str(error) for each in names):
                raise
            return
        if MARK in {**made["metadata"].get("annotations", {}), **made["metadata"]["labels"]}:
            return
        if time.monotonic() > deadline:
            raise CommandError(f"the policy {name} is not applied after {POLICY_SECONDS} s")
        time.sleep(0.2)


def _probe(run: str, weakening: Weakening) -> Raw:
    labels = {RUN_LABEL: run, "securebench.dev/role": weakening.role}
    container = {"name": "probe", "image": "probe", "securityContext": {}}
    metadata = {"name": f"probe-{run}", "labels": labels, "annotations": {"probe": "true"}}
    spec = {"containers": [container], "securityContext": {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
